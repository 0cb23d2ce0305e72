import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { RevisionRequirement, Scope } from "../../storage/storage.ts";
import type { ClientTls, Endpoint } from "./endpoints.ts";

export interface ConnectOptions {
  /**
   * Where the service is: HOST:PORT. Of several, all replicas of one service: calls and watches are spread
   * over them, and those of one that fails go to the others.
   */
  readonly address: string | readonly string[];
  /** Undefined: without TLS. */
  readonly tls?: ClientTls | undefined;
  /**
   * How long one call may take, in milliseconds, with all that is tried anew for it; a watch has no such
   * bound. Default 10,000.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * How long to wait for a connection, in milliseconds, until another server is turned to, or a watch says that
   * it can't go on. Default 3,000.
   */
  readonly connectTimeoutMs?: number | undefined;
  /**
   * How often a connection with calls or watches on it is asked for a sign of life, in milliseconds; one that
   * gives none within 10 s, or within this time if it is shorter, is given up. Default 30,000.
   */
  readonly keepaliveIntervalMs?: number | undefined;
  /**
   * How often one call is tried at the most, over all servers. A write is tried again only where it is
   * certain that nothing was written. Default 4; 1: never again.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * The largest message that is taken from a server, in bytes, also after it is inflated. A server keeps all below
   * 4 MiB but those of one object or event that is larger itself, so this has to be above twice what its store takes.
   * Beyond it the call is VALUE_TOO_LARGE, of a write OUTCOME_UNKNOWN. Default 32 MiB.
   */
  readonly maxMessageBytes?: number | undefined;
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
}

/** What every call takes, and a watch. */
interface CommonOptions {
  /**
   * The history that the revisions come from, as an earlier answer named it: if it is another now, the
   * call is HISTORY_CHANGED and nothing is done. Default: not checked.
   */
  readonly historyId?: string | undefined;
  /** Aborting it ends the call. */
  readonly signal?: AbortSignal | undefined;
}

/** What every call takes that has one answer. */
interface CallOptions extends CommonOptions {
  /** How long this call may take, in milliseconds; of a listing, each of its pages. Default: the client's. */
  readonly timeoutMs?: number | undefined;
}

export interface ReadOptions extends CallOptions {
  /** How new the answer has to be. Default: LINEARIZABLE. */
  readonly at?: RevisionRequirement | undefined;
  /** Asks this server and no other: one that `onOpened` of a watch was called with. Default: any. */
  readonly server?: Endpoint | undefined;
}

/** Which objects are picked by what is in them; both selectors have to match. */
export interface SelectorOptions {
  /** By labels, in Kubernetes' grammar: `app=web,tier in (a, b),!canary`. Default: all. */
  readonly labelSelector?: string | undefined;
  /** By fields that the resource declares: `spec.node=n1,phase!=Failed`. Default: all. */
  readonly fieldSelector?: string | undefined;
}

export interface ListOptions extends ReadOptions, SelectorOptions {
  /** Only keys that begin with this. Default: all. */
  readonly prefix?: string | undefined;
  /** How many objects a page holds at the most; 0, the default: as many as fit one message. */
  readonly pageSize?: number | undefined;
}

export interface PageOptions extends ListOptions {
  /** The `nextPageToken` of the page before, whose other options have to be the same. Default: the first. */
  readonly pageToken?: string | undefined;
}

export interface WatchOptions extends CommonOptions, SelectorOptions {
  /** Which keys to follow. Default: all. */
  readonly scope?: Scope | undefined;
  /** Delivers what came after this revision. Default: what comes from now on. */
  readonly afterRevision?: number | undefined;
  /** The current state first; `afterRevision` then says how new it has to be at least, 0: any. */
  readonly sendInitialEvents?: boolean | undefined;
  /**
   * What a watch that does not keep up gets: every event, or it is cut off; or the latest state of each
   * object, where what is between may be skipped. Default EVERY_EVENT.
   */
  readonly delivery?: "EVERY_EVENT" | "LATEST_STATE" | undefined;
  /** Whether events carry the object as it stood just before. */
  readonly includePrevious?: boolean | undefined;
  /**
   * How long the resume point may stand still before a unit without events moves it, in milliseconds,
   * at least 1,000. Default: the server's, 60 s.
   */
  readonly bookmarkIntervalMs?: number | undefined;
  /** Such a unit also whenever the server learns of a newer revision. */
  readonly eagerBookmarks?: boolean | undefined;
  /** How many bytes are held back until a unit is whole. Default 1 GiB; more ends the watch. */
  readonly maxBatchBytes?: number | undefined;
  /** Whether the watch goes on by itself when it is cut off; otherwise it throws why. Default true. */
  readonly resume?: boolean | undefined;
  /** Called when a stream has begun to answer: the first one, and each that continues it. */
  readonly onOpened?: ((server: Endpoint) => void) | undefined;
  /** Called when the watch was cut off and before it goes on. */
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

export interface PutOptions extends CallOptions {
  /** What must hold: 0: the object does not exist; N: it stands at N. Default: nothing. */
  readonly expectedModRevision?: number | undefined;
  /** An existing lease to attach the object to. Default: none. */
  readonly lease?: bigint | undefined;
  /**
   * How long the object lives unless it is put anew, in milliseconds: under a lease that the service
   * grants, which is of whole seconds, rounded up. Not with `lease`. Default: until it is deleted.
   */
  readonly ttlMs?: number | undefined;
}

export interface DeleteOptions extends CallOptions {
  /** The revision that the object must stand at, at least 1. Default: any. */
  readonly expectedModRevision?: number | undefined;
}

/** A watch was cut off and goes on by itself. */
export interface Interruption {
  readonly error: WatchFanoutError;
  /** Milliseconds until the watch is opened again. */
  readonly delayMs: number;
  /** Where it goes on from; undefined where nothing was delivered yet, and it begins anew. */
  readonly resumeRevision: number | undefined;
}
