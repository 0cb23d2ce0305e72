/**
 * What is wrong with the configuration: each problem a sentence that begins with where the value was
 * given (a flag, a variable, a line and key of the file) and says what is accepted.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}
