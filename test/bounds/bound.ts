/**
 * The bound of something that outlives a call: a queue, cache, pool or table. Rows stand in the files of this folder,
 * and test/contract/limits-doc.test.ts fails for a class of src/ that holds a collection and has no row.
 *
 * A row names classes and tests by their names alone, so that files can be moved and merged without a change here.
 */
export interface Bound {
  /** What is held. */
  readonly what: string;
  /**
   * The classes of src/ that hold it; a function or constant at the top level of a module if no class does. A class
   * with a collection has a row of its own, also if a class that is part of it has one.
   */
  readonly owners: readonly string[];
  /**
   * In count, bytes and time; of several bounds, the first one that is reached applies. "Fixed" means created at start
   * from the configuration, without growth. What is bounded "by open streams", or by the stored data, grows with that
   * alone. Options are written as `--option`. Other bounds are constants beside the owner, or defaults of the server's
   * limits.
   */
  readonly bound: string;
  /**
   * Whose bound it is: of a stream, a connection, a caller, a call, a resource, a client (of the library), or of the
   * process. A caller is an identity, by name, on all of its connections; an anonymous one is a host.
   */
  readonly per: string;
  /** What happens at the bound: which call is refused with which reason, what waits, what is evicted. Empty: nothing. */
  readonly atBound: string;
  /**
   * The tests that show it, at least one: titles as their files have them, placeholders included. A title that several
   * files have is preceded by the name of the file: "unfinished-requests.test.ts: is refused after a minute".
   */
  readonly shownBy: readonly string[];
}
