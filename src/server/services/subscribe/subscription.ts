import type { WatchFanoutError } from "../../../base/errors.ts";
import type { Identity } from "../../../identity/identity.ts";
import type { Access } from "../../../policy/access.ts";
import type { RoundReader, WatchStatus, WatchStream } from "../../../storage/storage.ts";
import { prefixSize, resumePointOf } from "../../../wire/encode.ts";
import { framesOf } from "../../../wire/frames.ts";
import type { PartsWriter } from "../../../wire/parts-writer.ts";
import {
  historyField,
  writeBookmark,
  writeCompressedResponse,
  writeWatchResponse,
} from "../../../wire/subscription.ts";
import type { ServedResource } from "../../calls/service-options.ts";
import type { Reservation } from "../../kernel/ledger.ts";
import { nextStreamId, type OpenStream, type StreamOwner } from "../../kernel/open-streams.ts";
import type { CompressedFrames } from "../compressed-frames.ts";

const noFrames: readonly Uint8Array[] = [];

/** What a client grants a watch, in responses and in bytes of them. Infinite: not limited. */
export interface Credit {
  readonly messages: number;
  readonly bytes: number;
}

/** What a watch needs of its stream. */
export interface SubscriptionOwner {
  readonly owner: StreamOwner;
  readonly identity: Identity;
  /** Whether the client has not accepted what was sent last. */
  readonly outstanding: boolean;
  readonly outstandingMs: number;
  /** The watch may have something to send. */
  ready(watch: Subscription): void;
  /** The watch has sent everything that it had. */
  settled(watch: Subscription): void;
  /** Sends the end of the watch, behind what it has sent. */
  endWatch(watch: Subscription, error: unknown): void;
}

/**
 * One watch of a Subscribe stream. It counts, and is shown and ended, as a stream of its own. No batch is read before all
 * frames of the one before were sent, so at most one is held here, beside what its watcher's buffer has.
 */
export class Subscription implements OpenStream {
  readonly id = nextStreamId();
  readonly openedAt: number;
  /** The client's id for it. */
  readonly key: number;
  readonly access: Access | undefined;
  readonly #stream: SubscriptionOwner;
  readonly #watch: WatchStream;
  readonly #resource: ServedResource;
  /** The charge for its request, if it exceeds the free allowance of each stream. */
  retainedRequest: Reservation | undefined;
  /** The frames of the batch that was read last, the index of the next one, and the batch's revision. */
  #frames = noFrames;
  #next = 0;
  /** Undefined: nothing is compressed. */
  readonly #compressed: CompressedFrames | undefined;
  #batchRevision: number | undefined;
  #sentPoint: number | undefined;
  #acceptedPoint: number | undefined;
  /** What it may still send; undefined: as much as it has. */
  #credit: { messages: number; bytes: number } | undefined;
  /** Number of responses that were sent. */
  sent = 0;
  /** For the stream: whether it waits for its turn, and whether a common progress waits for it. */
  isQueued = false;
  isAwaited = false;
  isOver = false;
  /** The revision that its client has asked it to report, once it is reached; 0: none. */
  progressTarget = 0;

  constructor(
    stream: SubscriptionOwner,
    {
      key,
      access,
      watch,
      resource,
      credit,
      compressed,
      now,
    }: {
      readonly key: number;
      readonly access: Access | undefined;
      readonly watch: WatchStream;
      readonly resource: ServedResource;
      readonly credit: Credit;
      readonly compressed: CompressedFrames | undefined;
      /** The clock's time, in milliseconds. */
      readonly now: number;
    },
  ) {
    this.key = key;
    this.access = access;
    this.openedAt = now;
    this.#stream = stream;
    this.#watch = watch;
    this.#resource = resource;
    this.#compressed = compressed;
    const { messages, bytes } = credit;
    if (messages < Infinity || bytes < Infinity) this.#credit = { messages, bytes };
  }

  get streamKind(): "watch" {
    return "watch";
  }

  get owner(): StreamOwner {
    return this.#stream.owner;
  }

  get identity(): Identity {
    return this.#stream.identity;
  }

  get served(): ServedResource {
    return this.#resource;
  }

  get resource(): string | undefined {
    return this.#resource.name;
  }

  get watchStatus(): WatchStatus | undefined {
    return this.#watch.status;
  }

  get outstandingMs(): number {
    return this.#stream.outstandingMs;
  }

  get heldBytes(): number {
    return this.#stream.outstanding || this.isParked ? this.pendingBytes : 0;
  }

  /** Memory of what waits to be sent, in bytes, estimated. */
  get pendingBytes(): number {
    let bytes = this.#watch.heldBytes ?? 0;
    for (let i = this.#next; i < this.#frames.length; i++) bytes += this.#frames[i]?.length ?? 0;
    return bytes;
  }

  /** Whether its credit is used up. */
  get isParked(): boolean {
    const credit = this.#credit;
    return credit !== undefined && (credit.messages <= 0 || credit.bytes <= 0);
  }

  get usesMessages(): boolean {
    return this.#credit !== undefined && this.#credit.messages < Infinity;
  }

  get usesBytes(): boolean {
    return this.#credit !== undefined && this.#credit.bytes < Infinity;
  }

  /** The revision up to which everything has been sent; 0: none yet. */
  get deliveredRevision(): number {
    const sent = this.#sentPoint ?? 0;
    return this.#isIdle ? Math.max(sent, this.#watch.syncedRevision ?? 0) : sent;
  }

  /** The last resume point that was sent, or if that is not certain any more, accepted. */
  get resumePoint(): number | undefined {
    return this.#sentPoint;
  }

  get #isIdle(): boolean {
    return this.#next === this.#frames.length;
  }

  /** Begins to send. Call it once. */
  start(): void {
    this.#watch.onReadable(() => this.#stream.ready(this));
    this.#stream.ready(this);
  }

  /** Has the stream read when its other watches have what has arrived with this one, or now. */
  readAfterOffers(reader: RoundReader): void {
    if (this.#watch.readAfterOffers === undefined) reader.roundOffered();
    else this.#watch.readAfterOffers(reader);
  }

  /** Adds to the credit that it uses. */
  grant({ messages, bytes }: Credit): void {
    const credit = this.#credit;
    if (credit !== undefined) {
      credit.messages = added(credit.messages, messages);
      credit.bytes = added(credit.bytes, bytes);
    }
    this.#stream.ready(this);
  }

  /**
   * Takes the next response: writes it. Returns its size in bytes; 0: nothing can be sent now, it has no credit, or it has
   * ended.
   */
  take(into: PartsWriter): number {
    if (this.#isCompressing()) return 0;
    if (this.#isIdle) {
      const bytes = this.#takeProgress(into);
      if (bytes > 0) return bytes;
    }
    if (this.isParked) {
      this.#stream.settled(this);
      return 0;
    }
    if (!this.#isIdle || this.#read()) {
      return this.#isCompressing() ? 0 : this.#takeFrame(into);
    }
    return this.isOver ? 0 : this.#takeProgress(into);
  }

  /**
   * Whether there is more to take, as far as it knows: otherwise it has settled, and says when it is ready. Ask it behind a
   * response that was taken, while what it consists of is in the processor's caches.
   */
  hasMore(): boolean {
    if (!this.#isIdle || this.isParked || this.#watch.hasPending !== false) return true;
    return this.#read() || (!this.isOver && this.progressTarget > 0);
  }

  /** Its client has accepted all that was sent. */
  accepted(): void {
    this.#acceptedPoint = this.#sentPoint;
    this.#watch.accepted?.();
  }

  /** What was sent and not accepted was taken back. */
  withdrawn(): void {
    this.#sentPoint = this.#acceptedPoint;
  }

  evict(error: WatchFanoutError): void {
    this.#stream.endWatch(this, error);
  }

  /**
   * Ends it if its watcher has ended, although it has no credit for what is before the end: that is dropped. A watcher does
   * not notify a reader that does not read.
   */
  endIfWatchHas(): void {
    if (this.#watch.status?.state !== "ended" && this.#watch.ended === undefined) return;
    while (this.#watch.read() !== undefined) {}
    if (this.#watch.ended instanceof Error) this.#stream.endWatch(this, this.#watch.ended);
  }

  close(): void {
    this.isOver = true;
    this.#frames = noFrames;
    this.#next = 0;
    this.retainedRequest?.release();
    this.#watch.close();
  }

  #isCompressing(): boolean {
    return this.#compressed?.isBusy === true;
  }

  #read(): boolean {
    const batch = this.#watch.read();
    if (batch === undefined) {
      if (this.#watch.ended instanceof Error) this.#stream.endWatch(this, this.#watch.ended);
      else this.#stream.settled(this);
      return false;
    }
    this.#batchRevision = batch.revision;
    this.#frames = framesOf(batch);
    this.#next = 0;
    if (this.#compressed?.concerns(this.#frames) === true) {
      this.#compressed.begin(this.#frames, () => this.#stream.ready(this));
    }
    return true;
  }

  #takeFrame(into: PartsWriter): number {
    const frame = this.#frames[this.#next] as Uint8Array;
    this.#next++;
    let revision = resumePointOf(frame);
    if (this.#isIdle) {
      revision = this.#batchRevision;
      this.#frames = noFrames;
      this.#next = 0;
    }
    if (revision !== undefined) this.#sentPoint = revision;
    const credit = this.#credit;
    if (credit !== undefined) {
      credit.messages--;
      credit.bytes -= frame.byteLength - prefixSize;
    }
    const { currentHistoryId } = this.#resource;
    const extra = this.sent++ === 0 ? historyField(currentHistoryId) : undefined;
    const part = this.#compressed?.part();
    this.#compressed?.take();
    // The first response, with the history, is small.
    if (this.#compressed === undefined || part === undefined || extra !== undefined) {
      return writeWatchResponse(into, this.key, frame, extra);
    }
    return writeCompressedResponse(into, this.key, part, this.#compressed.encoding);
  }

  /** The bookmark that its client has asked for, if it is due. It takes no credit. */
  #takeProgress(into: PartsWriter): number {
    if (this.progressTarget === 0) return 0;
    const revision = this.deliveredRevision;
    if (revision < this.progressTarget) return 0;
    this.progressTarget = 0;
    this.#sentPoint = revision;
    this.sent++;
    return writeBookmark(into, this.key, revision);
  }
}

/** Credit after a grant. What is not limited stays so. */
function added(left: number, more: number): number {
  return left === Infinity ? left : Math.min(Number.MAX_SAFE_INTEGER, left + more);
}
