// @deadlineMs 600000
// The nine attacks on the root boundary, 3 s each; 60 s each by `npm run soak -- --attacks`.

import './soak/attacks.ts'
