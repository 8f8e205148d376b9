// @deadlineMs 600000
// The attacks on the root boundary, raced ones 1.5 s each; 60 s each by `npm run soak -- --attacks`.

import './soak/attacks.ts'
