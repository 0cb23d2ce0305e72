import type { OutgoingHttpHeaders } from "node:http2";
import { Fifo } from "../../base/fifo.ts";
import { bigVarintSize, bytesFieldSize, WireWriter } from "../../protobuf/wire-writer.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { ClientWatch } from "./client-watch.ts";
import { UpstreamWatchCall } from "./upstream-watch-call.ts";
import { noWatchId, type ReceivedResponse, readWatchResponse } from "./watch-response.ts";

/** What the watches at etcd need of their stream. */
export interface UpstreamWatchesListener {
  /** The answer to the create request of a watch. */
  readonly onCreated: (watch: ClientWatch, response: ReceivedResponse, message: Buffer) => void;
  /** A later response of a watch. */
  readonly onResponse: (watch: ClientWatch, response: ReceivedResponse, message: Buffer) => void;
  /** All watches are synced up to this revision. */
  readonly onProgress: (revision: number) => void;
  readonly onEnd: (status: WireStatus) => void;
}

/** A create request. If it was cancelled meanwhile, its id is no longer that of the watch. */
interface Creation {
  readonly watch: ClientWatch;
  readonly id: bigint;
}

/** `fragment`: a response of any size would be held here as a whole. */
const inFragments = Buffer.of(0x40, 1);
/** The filters NOPUT and NODELETE, and no progress notifications. */
const bothFilters = Buffer.from("280028012000", "hex");
const progressRequest = Buffer.from("1a00", "hex");

/**
 * The watches of a client's stream that etcd serves, on a Watch stream of their own: with the client's metadata, so that no
 * two clients share one. At etcd they have ids of their own, which are never used twice.
 */
export class UpstreamWatches {
  readonly #call: UpstreamWatchCall;
  readonly #listener: UpstreamWatchesListener;
  readonly #count: (by: number) => void;
  readonly #watches = new Map<bigint, ClientWatch>();
  /** The create requests that are not answered: etcd answers in order. */
  readonly #creating = new Fifo<Creation>();
  #isProgressUnsent = false;
  #lastId = 0n;

  /** `count` is called with the number of watches that are more, or less, than before. */
  constructor(
    upstream: Upstream,
    headers: OutgoingHttpHeaders,
    count: (by: number) => void,
    listener: UpstreamWatchesListener,
  ) {
    this.#count = count;
    this.#listener = listener;
    this.#call = new UpstreamWatchCall(upstream, headers, {
      onMessage: (message) => this.#onMessage(message),
      onEnd: listener.onEnd,
    });
  }

  /** Number of watches. */
  get size(): number {
    return this.#watches.size;
  }

  /** Memory of a response that has not arrived completely, in bytes. */
  get receivedBytes(): number {
    return this.#call.receivedBytes;
  }

  [Symbol.iterator](): Iterator<ClientWatch> {
    return this.#watches.values();
  }

  /** Creates a watch from this revision on; 0: from now on. Its responses come in fragments. */
  create(watch: ClientWatch, startRevision: number): void {
    this.#create(watch, startRevision, inFragments);
  }

  /**
   * Creates a watch of the same keys that delivers nothing, from now on: etcd permits or refuses it as it would the
   * client's.
   */
  createSilent(watch: ClientWatch): void {
    this.#create(watch, 0, bothFilters);
  }

  #create(watch: ClientWatch, startRevision: number, fields: Buffer): void {
    const id = ++this.#lastId;
    watch.upstreamId = id;
    this.#watches.set(id, watch);
    this.#count(1);
    this.#creating.push({ watch, id });
    this.#call.send(createRequest([watch.request.encoded, fields], startRevision, id));
  }

  /** Cancels a watch: nothing is called for it any more. */
  cancel(watch: ClientWatch): void {
    const id = watch.upstreamId;
    if (id === undefined) return;
    this.#forget(watch);
    this.#call.send(cancelRequest(id));
  }

  /** Asks for progress, unless such a request still waits to be sent: etcd will read that one later than now. */
  requestProgress(): void {
    if (this.#isProgressUnsent) return;
    this.#isProgressUnsent = true;
    this.#call.send(progressRequest, () => {
      this.#isProgressUnsent = false;
    });
  }

  /** Receives nothing until `resume`. */
  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  /** Cancels all. Nothing is called any more. */
  close(): void {
    this.#call.close();
    this.#count(-this.#watches.size);
    this.#watches.clear();
  }

  #onMessage(message: Buffer): void {
    const response = readWatchResponse(message);
    if (response.created) {
      const { watch, id } = this.#creating.shift() ?? {};
      if (watch === undefined || watch.upstreamId !== id) return;
      if (response.canceled) this.#forget(watch);
      this.#listener.onCreated(watch, response, message);
    } else if (response.watchId === noWatchId) {
      if (this.#creating.length === 0) this.#listener.onProgress(response.revision);
    } else {
      const watch = this.#watches.get(response.watchId);
      if (watch === undefined) return;
      if (response.canceled) this.#forget(watch);
      this.#listener.onResponse(watch, response, message);
    }
  }

  #forget(watch: ClientWatch): void {
    const { upstreamId } = watch;
    watch.upstreamId = undefined;
    if (upstreamId !== undefined && this.#watches.delete(upstreamId)) this.#count(-1);
  }
}

/** The client's request with another start revision and watch id. Of a field that is there twice, the later one counts. */
function createRequest(parts: readonly Buffer[], startRevision: number, id: bigint): Buffer {
  const encoded = Buffer.concat(parts);
  const start = BigInt(startRevision);
  const size = encoded.length + 2 + bigVarintSize(start) + bigVarintSize(id);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(0x0a);
  writer.varint(size);
  writer.raw(encoded);
  writer.byte(0x18);
  writer.bigVarint(start);
  writer.byte(0x38);
  writer.bigVarint(id);
  return writer.bytes;
}

function cancelRequest(id: bigint): Buffer {
  const size = 1 + bigVarintSize(id);
  const writer = new WireWriter(Buffer.allocUnsafe(bytesFieldSize(size)));
  writer.byte(0x12);
  writer.varint(size);
  writer.byte(0x08);
  writer.bigVarint(id);
  return writer.bytes;
}
