/** A change of one source file that plants a bug. */
export interface Mutation {
  /** Path from the root of the repository. */
  readonly file: string;
  /** The exact text to replace, which occurs exactly once. */
  readonly find: string;
  readonly replace: string;
}

/** A test that fails with the bug. */
export interface CatchingTest {
  /** Path from the root of the repository. */
  readonly file: string;
  /** The title of the test, or a part of it. */
  readonly name: string;
  /** A part of the failure's message: the assertion that fails, and no other. */
  readonly message: string;
}

/** A simulation that fails with the bug. */
export interface CatchingSeed {
  readonly seed: number;
  /** A part of the sentence that says which guarantee is violated. */
  readonly message: string;
}

/**
 * A bug that a watch has had somewhere, as a mutant of this code or of the model of etcd that the simulations are built on.
 */
export interface CorpusEntry {
  /** Unique. */
  readonly id: string;
  /** The public report of the bug, or the change of this repository that fixed it. */
  readonly source: string;
  /** What happened there, in one sentence. */
  readonly bug: string;
  /** What a client of this service would see. */
  readonly shows: string;
  readonly mutations: readonly Mutation[];
  readonly tests?: readonly CatchingTest[];
  readonly seed?: CatchingSeed;
  /**
   * For bugs of etcd that this service withstands: the mutations of the model of etcd alone violate nothing. The entry
   * removes the defence as well, and that is what the test or seed shows.
   */
  readonly isWithstood?: boolean;
  /** For bugs of etcd that no watcher of it can detect at once: what detects them later. */
  readonly isPassedOn?: string;
}

/** Where the mutants of the model of etcd are. */
export const modelFolder = "test/simulation/";
