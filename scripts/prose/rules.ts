/** An idiom that is not plain technical English, and what to write instead. */
export interface ProseRule {
  readonly name: string;
  /** A blank stands for any white space, so that a phrase is found over a line break too. */
  readonly pattern: RegExp;
  readonly instead: string;
}

/** CONTRIBUTING.md says why, in its part on style. */
export const proseRules: readonly ProseRule[] = [
  // The subject of a sentence is a thing with a name.
  {
    name: "who",
    pattern: /\b(?:who|whom)\b/,
    instead: "name the subject: the client, the reader, the caller",
  },
  {
    name: "whoever",
    pattern: /\b(?:who|whom|whoso)ever\b/,
    instead: "name the subject: any client that, the caller that",
  },
  {
    name: "nobody",
    pattern: /\b(?:no|some|any|every)(?:body|one)\b(?!-)/,
    instead: "name the subject: no watcher, each client",
  },
  {
    name: "none",
    pattern: /\b(?:is|are|was|were|be|been|has|have|had|needs?|gives?) none\b/,
    instead: "does not exist, is absent, has no ...",
  },
  {
    name: "no longer ... either",
    pattern: /\bno longer\b[^.;:]{0,80}\beither\b|\bno more\b[^.;:]{0,80}\beither\b/,
    instead: "two sentences, each with its verb",
  },
  { name: "do so", pattern: /\b(?:do|does|did|doing) so\b/, instead: "repeat the verb" },
  // Phrases with a plain word.
  {
    name: "at the most",
    pattern: /\bat the (?:most|least|latest|earliest)\b/,
    instead: "at most, at least, no later than",
  },
  { name: "anew", pattern: /\b(?:anew|afresh)\b/, instead: "again; of a listing: relist" },
  { name: "once more", pattern: /\bonce more\b/, instead: "again" },
  {
    name: "by turns",
    pattern: /\bby turns\b/,
    instead: "alternately, one after the other, round-robin",
  },
  {
    name: "told",
    pattern: /\b(?:un)?told\b|\btell(?:s|ing)?\b/,
    instead: "notify, deliver, report, return, configure; of two things: distinguish",
  },
  {
    name: "hear of",
    pattern: /\b(?:hears?|heard|hearing) (?:of|from)\b/,
    instead: "is notified of, receives",
  },
  { name: "but for", pattern: /\bbut for\b/, instead: "except" },
  { name: "for ever", pattern: /\bfor ever\b/, instead: "indefinitely, until it is closed" },
  { name: "at hand", pattern: /\bat hand\b/, instead: "available, in memory" },
  {
    name: "be had",
    pattern: /\b(?:to|can|could|may|can't|cannot) be had\b/,
    instead: "available",
  },
  {
    name: "as it stands",
    pattern: /\b(?:as|how|what) (?:it |they )?stands?\b/,
    instead: "the current state, the current value",
  },
  { name: "stand on", pattern: /\bstands? on\b/, instead: "is built on, uses" },
  { name: "come by", pattern: /\b(?:come|comes|came) by\b/, instead: "is received, occurs" },
  {
    name: "come of",
    pattern: /\b(?:come|comes|came|became|becomes|become) of\b/,
    instead: "the result of, the outcome of",
  },
  {
    name: "how far it has come",
    pattern: /\bhow far\b[^.;:]{0,60}\b(?:has|have|had|is) (?:come|got|gone)\b/,
    instead: "the progress of",
  },
  {
    name: "go on",
    pattern: /\b(?:go|goes|going|went|gone) on\b/,
    instead: "continue, resume, is in progress",
  },
  {
    name: "take up",
    pattern: /\b(?:take|takes|taken|took|taking) up\b/,
    instead: "resume; of space: use, occupy",
  },
  {
    name: "take the place of",
    pattern: /\b(?:take|takes|taken|took|taking) (?:the|its|their) place\b/,
    instead: "replace",
  },
  { name: "let go", pattern: /\b(?:let|lets|letting) go\b/, instead: "release, evict, drop" },
  {
    name: "is to be",
    pattern: /\b(?:is|are|was|were) (?:not )?to be\b/,
    instead: "must be, will be",
  },
  { name: "had better", pattern: /\bhad better\b/, instead: "should" },
  {
    name: "harmless",
    pattern: /\bharmless(?:ly)?\b/,
    instead: "idempotent, has no effect",
  },
  { name: "of no use", pattern: /\bof no use\b/, instead: "has no effect, is not supported" },
  { name: "in vain", pattern: /\bin vain\b/, instead: "without effect, unsuccessfully" },
  { name: "never right", pattern: /\bnever right\b/, instead: "always indicates a bug" },
  { name: "all the same", pattern: /\ball the same\b/, instead: "nevertheless, still" },
  { name: "in step", pattern: /\bin step\b/, instead: "at the same time, synchronously" },
  {
    name: "now and then",
    pattern: /\bnow and then\b/,
    instead: "periodically, at most once per ...",
  },
  {
    name: "not mind",
    pattern: /\b(?:does|do|did|would) not mind\b/,
    instead: "ignores, accepts",
  },
  { name: "say so", pattern: /\b(?:say|says|said|saying) so\b/, instead: "reports it" },
  { name: "kin", pattern: /\b(?:its|their) kin\b/, instead: "and similar" },
  // Names that the glossary replaced.
  {
    name: "fold",
    pattern: /\b(?:un)?fold(?:s|ed|ing)?\b/,
    instead: "coalesce, coalesced batch",
  },
  { name: "wish", pattern: /\bwish(?:es|ed)?\b/, instead: "request, option" },
  { name: "owed", pattern: /\bow(?:es?|ed)\b/, instead: "pending, retained for" },
  { name: "poke", pattern: /\bpok(?:es?|ed|ing)\b|\barmed\b/, instead: "notify, needs a wake-up" },
  { name: "patrol", pattern: /\bpatrol(?:s|led)?\b/, instead: "maintenance" },
  { name: "spared", pattern: /\bspared\b/, instead: "coalesced, skipped" },
  {
    name: "level",
    pattern: /\b(?:is|are|was|were|be|been|becomes?|became|not) level\b|\blevel with\b/,
    instead: "synced",
  },
  { name: "left-out", pattern: /\bleft-out\b/, instead: "skipped" },
  {
    name: "rooms",
    pattern: /\brooms\b|\b(?:each|every|which|this) room\b/,
    instead: "layers, modules, folders; of a bound: capacity",
  },
];

/** What is right although a rule matches it: quotes, and "who" for people. */
export const allowedProse: readonly RegExp[] = [
  /\b(?:people|persons?|users|maintainers|operators|contributors|reporters) who\b/,
];
