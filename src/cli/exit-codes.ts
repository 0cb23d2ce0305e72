/** What the command's exit code tells a script. */
export const exitCodes = {
  done: 0,
  failed: 1,
  /** A flag, a variable or a line of the configuration is wrong; nothing was tried. */
  usage: 2,
  notFound: 3,
  conflict: 4,
  unavailable: 5,
} as const;
