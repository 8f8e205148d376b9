// The holder: owns the sockets of a service that runs in another container, TCP and UDP. It binds them in its own network namespace,
// where ports are published, and gives descriptors of them to every process that connects to a unix socket in a shared volume.
// So connections and datagrams queue here while anybody recreates the application. It accepts no connection to the service, and reads
// nothing.
//
//   baton-holder [--socket=PATH] [--backlog=N] [--uid=N]... ADDRESS...     ADDRESS: PORT, HOST:PORT or [HOST]:PORT, with /udp or not
//
// To a process that connects it sends one message: `baton-holder 1 NONCE`, a line for each name, and the descriptors in the same
// order. After that neither sends anything: the holder cuts off a client that does, and each sees at the end of the connection that
// the other is gone.
// A client may do to a lent socket whatever its descriptor allows. So the holder looks at what it lent whenever a client comes or
// leaves, and each second, and binds afresh what was shut, or connected to one peer: the next client has nothing of it.
// Must hold: no client of the unix socket makes it end, wait, or forget another client; what all clients together use is bounded.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define VERSION "1.2.0"
#define SOCKETS_MAX 32  // descriptors in one message, as the agent takes them
#define CLIENTS_MAX 64  // processes that have the sockets at the same time
#define OF_ONE_UID 16   // of these, by one user, who cannot keep the others out
#define UIDS_MAX 16     // in --uid
#define NAME_MAX_BYTES 64
#define LOOK_MS 1000    // how often it looks at its path, at what it lent, and at who has not taken it
#define TAKE_MS 10000   // a client that has not received the sockets by then is cut off
// The kernel counts what is sent and not received against this user's limit of descriptors: CLIENTS_MAX * SOCKETS_MAX at most.
#define FILES_WANTED 4096
#define LINES_MAX 50    // in the log at once; one more every LINE_MS
#define LINE_MS 10000
enum { DONE = 0, UNEXPECTED = 1, USAGE = 2 };

struct held {
  char name[NAME_MAX_BYTES];
  int fd, type, takes_both;
  struct sockaddr_storage address;
  socklen_t length;
};
struct client { int fd, is_cut; uid_t uid; long long since_ms; };

static struct held held[SOCKETS_MAX];
static struct client clients[CLIENTS_MAX];
static int held_count, client_count, backlog = 4096;
static uid_t uids[UIDS_MAX];
static int uid_count;
static char greeting[64 + SOCKETS_MAX * (NAME_MAX_BYTES + 1)];

static void end(int signal) {
  (void)signal;
  _exit(DONE); // process 1 of its container: without a handler a signal does nothing
}

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  exit(code);
}

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

// A client that comes and goes must not fill the disk with lines.
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
  static long long filled_at;
  static int left = LINES_MAX, unsaid;
  long long now = now_ms(), more = (now - filled_at) / LINE_MS;
  if (more > 0) {
    left = left + more > LINES_MAX ? LINES_MAX : left + (int)more;
    filled_at = now;
  }
  if (left == 0) {
    unsaid++;
    return;
  }
  left--;
  if (unsaid > 0) fprintf(stderr, "%d lines were left out\n", unsaid);
  unsaid = 0;
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
}

// -1 if `text` is not a number from 0 to `most`.
static long number(const char *text, long most) {
  if (*text < '0' || *text > '9' || strlen(text) > 10) return -1;
  char *rest;
  long value = strtol(text, &rest, 10);
  return *rest == '\0' && value <= most ? value : -1;
}

// A new socket at the address of `at`, also if `at` has one already. Returns -1 and sets errno if that fails.
// Datagrams wait in the kernel's buffer of the socket: `net.core.rmem_default` bytes.
static int bound(const struct held *at) {
  int on = 1, off = 0, only_v6 = !at->takes_both, is_udp = at->type == SOCK_DGRAM;
  int fd = socket(at->address.ss_family, at->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (at->fd >= 0) setsockopt(at->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); // clients may still have it, so it keeps its port
  if (!is_udp || at->fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at->address.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  int is_bound = bind(fd, (const struct sockaddr *)&at->address, at->length) == 0;
  if (is_bound && is_udp) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &off, sizeof off); // it would let another process take the datagrams
  if (is_bound && (is_udp || listen(fd, backlog) == 0)) return fd;
  int cause = errno;
  close(fd);
  errno = cause;
  return -1;
}

// Sets errno if `fd` stays -1.
static void bind_to(struct held *one, const void *address, socklen_t length, int takes_both) {
  memcpy(&one->address, address, length);
  one->length = length;
  one->takes_both = takes_both;
  one->fd = bound(one);
}

// The name is the listener's key in the application: `HOST:PORT`, without brackets; or the port alone, for whatever address the
// application listens on there. A name of UDP ends with `/udp`.
static void hold(const char *given) {
  const char *expected = "expected a port, HOST:PORT or [HOST]:PORT with a numeric host, or one of these with /udp";
  char text[NAME_MAX_BYTES - 12], host[sizeof text];
  const char *slash = strchr(given, '/');
  size_t bytes = slash == NULL ? strlen(given) : (size_t)(slash - given);
  int type = slash == NULL ? SOCK_STREAM : SOCK_DGRAM;
  if (bytes >= sizeof text || (slash != NULL && strcmp(slash, "/udp") != 0)) fail(USAGE, "%s, got `%.80s`", expected, given);
  memcpy(text, given, bytes);
  text[bytes] = '\0';
  const char *colon = strrchr(text, ':');
  long port = number(colon == NULL ? text : colon + 1, 65535);
  if (port < 1) fail(USAGE, "%s, got `%s`", expected, given);
  uint16_t to = (uint16_t)port;
  if (held_count == SOCKETS_MAX) fail(USAGE, "expected at most %d addresses", SOCKETS_MAX);
  size_t length = colon == NULL ? 0 : (size_t)(colon - text);
  memcpy(host, text, length);
  host[length] = '\0';
  if (length > 1 && host[0] == '[' && host[length - 1] == ']') {
    memmove(host, host + 1, length - 2);
    host[length - 2] = '\0';
  }
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(to), .sin6_addr = IN6ADDR_ANY_INIT};
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(to), .sin_addr.s_addr = INADDR_ANY};
  struct held *next = &held[held_count];
  const char *kind = slash == NULL ? "" : slash;
  if (colon == NULL) snprintf(next->name, sizeof next->name, "%u%s", to, kind);
  else snprintf(next->name, sizeof next->name, "%s:%u%s", host, to, kind);
  for (int i = 0; i < held_count; i++)
    if (strcmp(held[i].name, next->name) == 0) fail(USAGE, "expected each address once, got `%s` twice", given);
  int is_v6 = colon == NULL || strcmp(host, "::") == 0 || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
  int is_v4 = colon == NULL || (!is_v6 && inet_pton(AF_INET, host, &v4.sin_addr) == 1);
  if (!is_v6 && !is_v4) fail(USAGE, "%s, got `%s`", expected, given);
  next->type = type;
  next->fd = -1;
  if (is_v6) bind_to(next, &v6, sizeof v6, IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr));
  // a host without IPv6
  if (next->fd < 0 && is_v4 && (!is_v6 || errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) bind_to(next, &v4, sizeof v4, 0);
  if (next->fd < 0) fail(UNEXPECTED, "listening on %s: %s", given, strerror(errno));
  held_count++;
}

// Whether everybody's connections or datagrams still come to it. Of UDP SHUT_WR alone cannot be seen.
static int is_well(const struct held *one) {
  if (one->type == SOCK_STREAM) {
    int listens = 0;
    socklen_t length = sizeof listens;
    return getsockopt(one->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens;
  }
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  if (getpeername(one->fd, (struct sockaddr *)&peer, &length) == 0) return 0;
  struct pollfd shut = {.fd = one->fd, .events = POLLRDHUP};
  return poll(&shut, 1, 0) == 0;
}

// The new socket is bound before the old one is closed, so nobody can take the port in between. The old one stays as the client made it
// (an application may connect its UDP socket on purpose); what comes from now on queues at the new one.
// False if one could not be bound afresh; the next look tries again.
static int look(void) {
  int are_well = 1;
  for (int i = 0; i < held_count; i++) {
    struct held *one = &held[i];
    if (is_well(one)) continue;
    int fd = bound(one);
    note("%s was shut or connected by a client: %s", one->name, fd < 0 ? strerror(errno) : "bound afresh");
    if (fd >= 0) {
      close(one->fd);
      one->fd = fd;
    }
    are_well &= fd >= 0;
  }
  return are_well;
}

static void greet(void) {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail(UNEXPECTED, "getrandom: %s", strerror(errno));
  char *at = greeting + sprintf(greeting, "baton-holder 1 ");
  for (size_t i = 0; i < sizeof bytes; i++) at += sprintf(at, "%02x", bytes[i]);
  *at++ = '\n';
  for (int i = 0; i < held_count; i++) at += sprintf(at, "%s\n", held[i].name);
}

static struct sockaddr_un address_of(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return address;
}

// Whether another process answers there. If two holders shared a volume, an application could get sockets whose ports nobody publishes.
static int answers(const char *path) {
  struct sockaddr_un address = address_of(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int is = fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
  if (fd >= 0) close(fd);
  return is;
}

// Makes a socket under a name beside `path` and renames it: `path` never leads to a socket that does not listen yet. A kill in
// between leaves the other name, which the next call removes. Returns -1 and sets errno if that fails; fills `inode` for has_name().
static int publish(const char *path, struct stat *inode) {
  char other[sizeof(((struct sockaddr_un *)0)->sun_path)];
  snprintf(other, sizeof other, "%s~", path);
  struct sockaddr_un address = address_of(other);
  unlink(other);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  mode_t before = umask(0777); // nobody connects before it listens
  int is_bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
  umask(before);
  if (is_bound && listen(fd, CLIENTS_MAX) == 0 && chmod(other, 0660) == 0 && stat(other, inode) == 0 &&
      rename(other, path) == 0)
    return fd;
  int cause = errno;
  close(fd);
  errno = cause;
  return -1;
}

static int has_name(const char *path, const struct stat *inode) {
  struct stat there;
  return lstat(path, &there) == 0 && there.st_ino == inode->st_ino && there.st_dev == inode->st_dev;
}

static const char *refusal(uid_t uid) {
  int own = 0, is_named = uid_count == 0;
  for (int i = 0; i < client_count; i++) own += clients[i].uid == uid;
  for (int i = 0; i < uid_count; i++) is_named |= uids[i] == uid;
  if (!is_named) return "it is not in --uid";
  if (client_count == CLIENTS_MAX) return "there are too many";
  return own >= OF_ONE_UID ? "it has too many" : NULL;
}

static int give(int to) {
  int fds[SOCKETS_MAX];
  union {
    char bytes[CMSG_SPACE(sizeof fds)];
    struct cmsghdr head;
  } control;
  size_t length = sizeof(int) * (size_t)held_count;
  for (int i = 0; i < held_count; i++) fds[i] = held[i].fd;
  memset(&control, 0, sizeof control);
  struct iovec text = {greeting, strlen(greeting)};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(length)};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(length);
  memcpy(CMSG_DATA(head), fds, length);
  return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)text.iov_len;
}

// False if this process has no descriptor left for another client.
static int take_client(int door, int are_well) {
  int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
  struct ucred who = {.uid = (uid_t)-1, .gid = (gid_t)-1};
  socklen_t length = sizeof who;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length); // the pid is 0: it is in another namespace
  const char *why = refusal(who.uid);
  if (why == NULL && !are_well) why = "a socket could not be bound afresh";
  if (why == NULL && !give(fd)) why = strerror(errno);
  if (why != NULL) {
    note("refused uid %u: %s", who.uid, why);
    close(fd);
    return 1;
  }
  note("gave uid %u gid %u the sockets", who.uid, who.gid);
  clients[client_count++] = (struct client){.fd = fd, .uid = who.uid, .since_ms = now_ms()};
  return 1;
}

// Bytes of the message that the client has neither received nor dropped.
static int unread_by(const struct client *one) {
  int bytes = 0;
  return ioctl(one->fd, TIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// One that still has the sockets in flight sees the end too, but keeps its place until it has let go of them. Else it could come again
// and again, until the kernel passes nothing more for this user.
static void let_go(int i) {
  if (unread_by(&clients[i]) > 0) {
    if (!clients[i].is_cut) shutdown(clients[i].fd, SHUT_RDWR);
    clients[i].is_cut = 1;
    return;
  }
  note("uid %u is gone", clients[i].uid);
  close(clients[i].fd);
  clients[i] = clients[--client_count];
}

static int is_late(const struct client *one) {
  if (now_ms() - one->since_ms <= TAKE_MS || unread_by(one) == 0) return 0;
  note("uid %u did not receive the sockets: cut off", one->uid);
  return 1;
}

__attribute__((noreturn)) static void serve(const char *path, int door, struct stat *inode) {
  struct pollfd polled[CLIENTS_MAX + 1];
  for (int has_room = 1;;) {
    int count = client_count;
    for (int i = 0; i < count; i++)
      polled[i] = (struct pollfd){.fd = clients[i].is_cut ? -1 : clients[i].fd, .events = POLLIN | POLLRDHUP};
    polled[count] = (struct pollfd){.fd = has_room ? door : -1, .events = POLLIN};
    int ready = poll(polled, (nfds_t)count + 1, LOOK_MS);
    has_room = 1;
    for (int i = count - 1; i >= 0; i--) // the client has ended, has sent something, or receives nothing
      if (clients[i].is_cut || (ready > 0 && polled[i].revents != 0) || is_late(&clients[i])) let_go(i);
    int are_well = look();
    if (ready > 0 && polled[count].revents != 0) has_room = take_client(door, are_well);
    if (has_name(path, inode)) continue;
    int next = publish(path, inode);
    if (next < 0) {
      note("making %s anew: %s", path, strerror(errno));
      poll(NULL, 0, 100); // a client that removes the path again and again must not make this loop spin
      continue;
    }
    note("%s was gone or another's: made anew", path);
    close(door);
    door = next;
  }
}

int main(int argc, char **argv) {
  const char *path = "/run/hold/socket";
  const char *usage = "usage: baton-holder [--socket=PATH] [--backlog=N] [--uid=N]... PORT|HOST:PORT|[HOST]:PORT[/udp]...";
  int first = 1;
  for (; first < argc && argv[first][0] == '-'; first++) {
    const char *flag = argv[first], *equals = strchr(flag, '='), *value = equals == NULL ? "" : equals + 1;
    if (strcmp(flag, "--version") == 0) return puts("baton-holder " VERSION) < 0 ? UNEXPECTED : DONE;
    if (strcmp(flag, "--help") == 0) return puts(usage) < 0 ? UNEXPECTED : DONE;
    if (strncmp(flag, "--socket=", 9) == 0) {
      if (*value != '/' || strlen(value) > 100) fail(USAGE, "expected an absolute path of at most 100 bytes for --socket, got `%.120s`", value);
      path = value;
    } else if (strncmp(flag, "--backlog=", 10) == 0) {
      backlog = (int)number(value, 65535);
      if (backlog < 1) fail(USAGE, "expected a number from 1 to 65535 for --backlog, got `%.40s`", value);
    } else if (strncmp(flag, "--uid=", 6) == 0) {
      long uid = number(value, 4294967294L);
      if (uid < 0) fail(USAGE, "expected the number of a user for --uid, got `%.40s`", value);
      if (uid_count == UIDS_MAX) fail(USAGE, "expected at most %d times --uid", UIDS_MAX);
      uids[uid_count++] = (uid_t)uid;
    } else {
      fail(USAGE, "expected --socket=, --backlog=, --uid=, --version or --help, got `%.40s`\n%s", flag, usage);
    }
  }
  if (first == argc) fail(USAGE, "expected a port to hold\n%s", usage);
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_WANTED) {
    files.rlim_cur = files.rlim_max < FILES_WANTED ? files.rlim_max : FILES_WANTED;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGPIPE, SIG_IGN);
  setvbuf(stderr, NULL, _IOLBF, 1024);
  for (int i = first; i < argc; i++) hold(argv[i]);
  greet();
  if (answers(path)) fail(UNEXPECTED, "another holder answers at %s\nhint: one volume for each holder", path);
  struct stat inode;
  int door = publish(path, &inode);
  if (door < 0 && errno == EACCES)
    fail(UNEXPECTED, "making %s: %s\nhint: uid %u may not write its folder; a volume of an older holder belongs to uid 65534: it keeps nothing, remove it",
         path, strerror(errno), geteuid());
  if (door < 0) fail(UNEXPECTED, "making %s: %s", path, strerror(errno));
  for (int i = 0; i < held_count; i++) note("holding %s", held[i].name);
  note("lending them at %s, with a backlog of %d", path, backlog);
  serve(path, door, &inode);
}
