/**
 * The problems of a configuration. Each is a sentence that begins with the source of the value (a flag, a variable, or a
 * line and key of the file) and says what is accepted.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}
