import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { Gate } from "../../base/gate.ts";
import type { CompressedPart, Encoding, EncodingName } from "../../wire/encoding.ts";
import { gzipEncoding } from "../../wire/gzip.ts";
import { zstdEncoding } from "../../wire/zstd.ts";

/** Which responses are compressed. */
export interface CompressionOptions {
  /** In the order of preference: a response has the first that its client accepts. At least one. */
  readonly encodings: readonly EncodingName[];
  /** Smaller frames and chunks of lists are not compressed, in bytes. Default 4 KiB. */
  readonly minBytes?: number | undefined;
}

/** What was compressed so far, and what is held of it. */
export interface CompressionStats {
  /**
   * How often something was compressed; was not smaller then; or was sent as it is, since too much waited or it took too
   * long.
   */
  readonly results: Readonly<Record<CompressionResult, number>>;
  /** Memory of what is held for later responses, in bytes. */
  readonly cachedBytes: number;
  /** Size of the compressed parts of responses, as sent, and before compression, in bytes. */
  readonly sentBytes: number;
  readonly sentPlainBytes: number;
}

type CompressionResult = "compressed" | "incompressible" | "pressure" | "late";

/** A kind of content. */
export interface SourceKind<Source extends object> {
  /** Its size in bytes, known without a copy. */
  sizeOf(source: Source): number;
  bytesOf(source: Source): Uint8Array;
}

/** What of each source is compressed; undefined: it is sent as it is. */
export type CompressedParts = readonly (CompressedPart | undefined)[];

const encodings: Readonly<Record<EncodingName, Encoding>> = {
  gzip: gzipEncoding as Encoding,
  zstd: zstdEncoding,
};

const defaultMinBytes = 4 * 1024;
/** Maximum number compressed at once: Node.js' pool has four threads, which other work needs as well. */
const maxAtOnce = 2;
/** Maximum number and size of what waits for that. */
const maxWaiting = 256;
const maxWaitingBytes = 16 * 1024 ** 2;
/** How long responses wait for a part, in milliseconds. */
const maxWaitMs = 100;
/** Maximum memory of parts that are held for later responses, in bytes; and of each, beside its bytes. */
const maxCachedBytes = 16 * 1024 ** 2;
const partOverheadBytes = 256;
/** What parts that one response has used may take if others want room. */
const maxUsedOnceBytes = maxCachedBytes / 4;
/** Interval at which parts are dropped that no response has used since the last time, in milliseconds. */
const expireMs = 5_000;
/** Maximum length of a list of encodings that is read, in characters. */
const maxAccepted = 256;
/** What is larger than this part of its size is sent as it is. */
const worthwhile = 7 / 8;

/** A source in one encoding. */
interface Entry {
  part: CompressedPart | undefined;
  /** "late": compressed for later responses. "plain": not worth it. "dropped": as if it had never been asked for. */
  state: "waiting" | "late" | "ready" | "plain" | "dropped";
  waiters: Waiting[];
  timer: Timer | undefined;
  isFresh: boolean;
}

/** A response that waits for some of its parts. */
interface Waiter {
  readonly parts: (CompressedPart | undefined)[];
  missing: number;
  readonly onDone: (parts: CompressedParts) => void;
}

/** Where a response needs a part. */
interface Waiting {
  readonly waiter: Waiter;
  readonly index: number;
}

/**
 * Compresses what responses share, once for each encoding: the first response that needs a part has it compressed in a
 * thread, and others that need it meanwhile wait with it, for at most 100 ms. Nothing waits while too much does: then it is
 * sent as it is, which is always possible, since each message says whether it is compressed.
 *
 * Parts are held by the identity of their source, which is itself held where it is shared: a frame of a batch, or a chunk of
 * a list. All parts together are bounded.
 */
export class Compressor {
  readonly #clock: Clock;
  readonly #accepted: readonly Encoding[];
  readonly minBytes: number;
  readonly #gate = new Gate({ concurrent: maxAtOnce, queued: maxWaiting });
  readonly #entries: ReadonlyMap<Encoding, WeakMap<object, Entry>>;
  /** Those with a part that one response has used, and several. */
  readonly #usedOnce = new CachedParts();
  readonly #shared = new CachedParts();
  #waitingBytes = 0;
  #expiry: Timer | undefined;
  #sentBytes = 0;
  #sentPlainBytes = 0;
  readonly #results = { compressed: 0, incompressible: 0, pressure: 0, late: 0 };

  constructor(clock: Clock, options: CompressionOptions) {
    this.#clock = clock;
    this.#accepted = options.encodings.map((name) => encodings[name]);
    this.minBytes = options.minBytes ?? defaultMinBytes;
    this.#entries = new Map(this.#accepted.map((encoding) => [encoding, new WeakMap()]));
  }

  /** The encoding for a client that accepts these, in a list with commas; undefined: it accepts none of ours. */
  encodingFor(accepted: string | undefined): Encoding | undefined {
    if (accepted === undefined || accepted.length > maxAccepted) return undefined;
    const names = accepted.split(",").map((name) => name.trim());
    return this.#accepted.find(({ name }) => names.includes(name));
  }

  /**
   * Returns the compressed parts of a response, or undefined: then `onDone` is called with them once, in a later step. `owner`
   * is whose turn it takes.
   */
  parts<Source extends object>(
    encoding: Encoding,
    sources: readonly Source[],
    kind: SourceKind<Source>,
    owner: object,
    onDone: (parts: CompressedParts) => void,
  ): CompressedParts | undefined {
    const parts: (CompressedPart | undefined)[] = [];
    let waiter: Waiter | undefined;
    for (const [index, source] of sources.entries()) {
      const entry =
        kind.sizeOf(source) < this.minBytes
          ? undefined
          : this.#entryOf(encoding, source, kind, owner);
      parts.push(entry?.part);
      if (entry?.state !== "waiting") continue;
      waiter ??= { parts, missing: 0, onDone };
      waiter.missing++;
      entry.waiters.push({ waiter, index });
    }
    return waiter === undefined ? parts : undefined;
  }

  /** A response is sent with these parts. */
  sent(part: CompressedPart): void {
    this.#sentBytes += part.bytes.byteLength;
    this.#sentPlainBytes += part.plainBytes;
  }

  stats(): CompressionStats {
    return {
      ...{ sentBytes: this.#sentBytes, sentPlainBytes: this.#sentPlainBytes },
      ...{ cachedBytes: this.#cachedBytes, results: { ...this.#results } },
    };
  }

  /** Undefined: it can't be compressed now. */
  #entryOf<Source extends object>(
    encoding: Encoding,
    source: Source,
    kind: SourceKind<Source>,
    owner: object,
  ): Entry | undefined {
    const entries = this.#entries.get(encoding) as WeakMap<object, Entry>;
    const known = entries.get(source);
    if (known !== undefined && known.state !== "dropped") {
      if (known.state === "ready") this.#keep(known, this.#shared);
      return known;
    }
    const size = kind.sizeOf(source);
    if (this.#waitingBytes + size > maxWaitingBytes) {
      this.#results.pressure++;
      return undefined;
    }
    const entry: Entry = {
      part: undefined,
      state: "waiting",
      waiters: [],
      timer: undefined,
      isFresh: true,
    };
    entries.set(source, entry);
    this.#waitingBytes += size;
    entry.timer = this.#clock.setTimeout(() => this.#late(entry), maxWaitMs);
    this.#gate.queue(owner, {
      bytes: 0,
      enter: () =>
        encoding.compress(kind.bytesOf(source), (part) => {
          this.#waitingBytes -= size;
          try {
            this.#compressed(entry, size, part);
          } finally {
            this.#gate.leave(owner);
          }
        }),
      refuse: () => {
        this.#waitingBytes -= size;
        this.#results.pressure++;
        entry.state = "dropped";
        // Another response is being put together now.
        this.#clock.setImmediate(() => this.#settle(entry, undefined));
      },
    });
    return entry;
  }

  get #cachedBytes(): number {
    return this.#usedOnce.bytes + this.#shared.bytes;
  }

  #compressed(entry: Entry, size: number, made: CompressedPart | undefined): void {
    const part =
      made !== undefined && made.frame.byteLength <= size * worthwhile ? made : undefined;
    if (part === undefined) {
      this.#results.incompressible++;
      entry.state = "plain";
    } else {
      this.#results.compressed++;
      entry.part = part;
      entry.state = "ready";
      this.#keep(entry, entry.waiters.length > 1 ? this.#shared : this.#usedOnce);
    }
    this.#settle(entry, part);
  }

  #late(entry: Entry): void {
    if (entry.state !== "waiting") return;
    this.#results.late++;
    entry.state = "late";
    this.#settle(entry, undefined);
  }

  /** Continues the responses that wait, which may be thousands, in time slices. */
  #settle(entry: Entry, part: CompressedPart | undefined): void {
    entry.timer?.cancel();
    const { waiters } = entry;
    entry.waiters = [];
    const done: Waiter[] = [];
    for (const { waiter, index } of waiters) {
      waiter.parts[index] = part;
      waiter.missing--;
      if (waiter.missing === 0) done.push(waiter);
    }
    if (done.length > 0) runInTimeSlices(this.#clock, resumed(done));
  }

  /** Pages that no others share must not displace what many do, however many there are. */
  #keep(entry: Entry, among: CachedParts): void {
    entry.isFresh = true;
    this.#usedOnce.delete(entry);
    this.#shared.delete(entry);
    among.add(entry);
    while (this.#cachedBytes > maxCachedBytes) {
      const from = this.#usedOnce.bytes > maxUsedOnceBytes ? this.#usedOnce : this.#shared;
      for (const oldest of from.entries) {
        this.#drop(oldest);
        break;
      }
    }
    this.#expiry ??= this.#clock.setTimeout(this.#expire, expireMs);
  }

  readonly #expire = (): void => {
    for (const { entries } of [this.#usedOnce, this.#shared]) {
      for (const entry of entries) {
        if (entry.isFresh) entry.isFresh = false;
        else this.#drop(entry);
      }
    }
    this.#expiry =
      this.#cachedBytes === 0 ? undefined : this.#clock.setTimeout(this.#expire, expireMs);
  };

  #drop(entry: Entry): void {
    this.#usedOnce.delete(entry);
    this.#shared.delete(entry);
    entry.part = undefined;
    entry.state = "dropped";
  }
}

/** Entries with a part, the least recently used first. */
class CachedParts {
  readonly entries = new Set<Entry>();
  bytes = 0;

  add(entry: Entry): void {
    this.entries.add(entry);
    this.bytes += costOf(entry);
  }

  delete(entry: Entry): void {
    if (this.entries.delete(entry)) this.bytes -= costOf(entry);
  }
}

function costOf({ part }: Entry): number {
  return partOverheadBytes + (part?.frame.byteLength ?? 0);
}

function* resumed(waiters: readonly Waiter[]): TimeSlicedWork<void> {
  for (const { onDone, parts } of waiters) {
    onDone(parts);
    yield;
  }
}
