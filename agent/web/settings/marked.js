// The Markdown parser's lexer, which makes tokens and no HTML. The page loads it when a person opens release notes. From source the
// panel serves the package's own file under this name.

/*! marked: MIT License, Copyright (c) 2018+ MarkedJS, 2011-2018 Christopher Jeffrey */

export { Lexer } from 'marked'
