// How a doctor judges what it finds, the operator's and the author's.

/** `problem`: something would fail */
export type Level = 'ok' | 'warning' | 'problem'
