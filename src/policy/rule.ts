/** Identifies a rule of a policy. */
export interface Rule {
  /** `ROLE[INDEX]`, with the rule's index in its role, from 0. */
  readonly name: string;
  /** Its line in the file, from 1. */
  readonly line: number;
}
