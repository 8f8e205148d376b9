// The tests' only importer of fast-check.

export { default as fc } from 'fast-check'
