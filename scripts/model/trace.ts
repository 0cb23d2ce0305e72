/*
 * A trace: what one run of the service did as etcd, its replicas and one of its clients saw it. Keys are numbered in their
 * order, beginning with 1; an object matches if the client's request selects it. The client has one watch, which it resumes;
 * or it reads, with one selection; or it writes.
 */

export interface Trace {
  /** Of what run, for messages. */
  readonly name: string;
  /** The client's; `key` and `prefix` count as selectors. */
  readonly isLatestState: boolean;
  readonly hasPrevious: boolean;
  readonly keys: readonly string[];
  readonly roots: readonly string[];
  readonly relays: readonly string[];
  readonly steps: readonly Step[];
}

export interface TracedEvent {
  readonly kind: "ADDED" | "MODIFIED" | "DELETED";
  readonly key: number;
  readonly mod: number;
  readonly create: number;
  /** The mod_revision of the object before; 0: it did not exist. */
  readonly previous: number;
}

/** One response, or all parts of an initial state, in which events of a revision are in key order. */
export interface TracedResponse {
  readonly revision: number;
  readonly isInitial: boolean;
  readonly events: readonly TracedEvent[];
  /** The id of the history, numbered; 0: none was named. */
  readonly id: number;
}

export type Step =
  // etcd
  | {
      readonly step: "commit";
      readonly revision: number;
      readonly matching: readonly number[];
      readonly others: readonly number[];
      readonly removed: readonly number[];
      /** It is the write of the client that is under way. */
      readonly isOwn?: true;
    }
  | { readonly step: "compact"; readonly revision: number }
  // To a snapshot of a history: they are numbered, the first is 0. Announced: another id is in the marker key.
  | {
      readonly step: "restore";
      readonly history: number;
      readonly revision: number;
      readonly isAnnounced: boolean;
    }
  // A replica is started; opens its watch after a list, or resumes it; applies what the watch has delivered.
  | { readonly step: "start"; readonly server: string }
  | { readonly step: "follow"; readonly server: string; readonly after: number }
  | {
      readonly step: "apply";
      readonly server: string;
      readonly revision: number;
      readonly updates: readonly { readonly key: number; readonly revision: number }[];
    }
  // The client
  | {
      readonly step: "call";
      readonly server: string;
      /**
       * How the stream begins, `after` a resume point. Or a read: a List, or a Get, which is a List of one key; "any" may be of
       * any revision, if that is not older than `after`.
       */
      readonly begins: "state" | "now" | "resume" | "list" | "any";
      readonly after: number;
    }
  // A Put through the service; one that creates expects that the object does not exist.
  | { readonly step: "write"; readonly key: number; readonly creates: boolean }
  | {
      readonly step: "written";
      readonly outcome: "acknowledged" | "refused" | "unknown";
      /** Of one that is acknowledged. */
      readonly revision: number | undefined;
      /** Of one that is refused: the object is not as expected. */
      readonly isConflict: boolean;
    }
  | { readonly step: "response"; readonly response: TracedResponse }
  | {
      readonly step: "end";
      /** Empty: the connection was lost, or the client has left. */
      readonly reason: string;
      /** The resume point and the oldest revision that the end names; undefined: none. */
      readonly resume: number | undefined;
      readonly oldest: number | undefined;
    };

/** Those of one revision that follow each other. Whether etcd's order is kept within a revision the checkers show. */
export function inKeyOrder<Event extends Pick<TracedEvent, "key" | "mod">>(
  events: readonly Event[],
): Event[] {
  const groups: Event[][] = [];
  for (const event of events) {
    const last = groups.at(-1);
    if (last?.[0]?.mod === event.mod) last.push(event);
    else groups.push([event]);
  }
  return groups.flatMap((group) => group.sort((one, other) => one.key - other.key));
}
