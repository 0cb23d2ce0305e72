import type { Readable } from "node:stream";
import { ownBytes } from "../../base/growing-buffer.ts";
import type { UpstreamStream } from "../../etcd/client/upstream-connection.ts";
import type { MessageTranslator } from "./passing-messages.ts";

/** HTTP/2 flow control window of a client's stream: what it may send while it is not read from, in bytes. */
const windowBytes = 64 * 1024;

/** What is read of a request before there is a connection to etcd, and kept of one that may be sent again, in bytes. */
const maxEarlyBytes = 64 * 1024;

/** What the messages of a request are translated by. */
export interface RequestTranslation {
  readonly translator: MessageTranslator;
  /** Called instead of throwing, with the error of `MessageTranslator.pass`. It stops the request. */
  readonly failed: (error: unknown) => void;
}

/**
 * Passes the bytes of a request on as they come. A client whose bytes etcd does not accept is not read from, so its flow
 * control makes it wait. What is held meanwhile is charged to its connection.
 */
export class ForwardedRequest {
  readonly #request: Readable;
  readonly #charge: (bytes: number) => void;
  readonly #translated: RequestTranslation | undefined;
  #upstream: UpstreamStream | undefined;
  /** What arrived before there was a connection. */
  #early: Buffer[] = [];
  #held = 0;
  /** What was passed on, to send it again. Undefined: it is not kept, or is too large. */
  #kept: Buffer[] | undefined;
  #keptBytes = 0;
  #onRead: (() => void) | undefined;
  #isPaused = false;
  #hasEnded = false;
  #isStopped = false;

  /** `charge` charges the call with what is held. It may stop this. `translated`: absent for bytes that pass as they are. */
  constructor(
    request: Readable,
    charge: (bytes: number) => void,
    translated?: RequestTranslation | undefined,
  ) {
    this.#request = request;
    this.#charge = charge;
    this.#translated = translated;
  }

  /** Begins with what has been read of the request, if anything, and reads on. */
  begin(received: Buffer | undefined): void {
    const request = this.#request;
    const end = (): void => {
      this.#hasEnded = true;
      this.#upstream?.end();
      this.#read();
    };
    if (received !== undefined) this.#take(received);
    request.on("data", (chunk: Buffer) => this.#take(chunk));
    request.on("end", end);
    if (received === undefined) return;
    if (request.readableEnded) end();
    else if (!this.#isPaused) request.resume();
  }

  /** Whether the client has half-closed the call. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /**
   * Keeps the request, so that it can be sent again, and calls `onRead` once it has arrived, or is too large for that. It is
   * called before `begin`.
   */
  keep(onRead: () => void): void {
    this.#kept = [];
    this.#onRead = onRead;
  }

  /** Whether all of it is kept. */
  get isKept(): boolean {
    return this.#hasEnded && this.#kept !== undefined;
  }

  /** All of it, if it is kept; otherwise what has arrived before there was a stream to etcd. */
  get start(): Buffer {
    return Buffer.concat(this.#kept ?? this.#early);
  }

  /** There is a stream to etcd now, the first or, if it is kept, another one. */
  attach(upstream: UpstreamStream): void {
    const isAgain = this.#upstream !== undefined;
    this.#upstream = upstream;
    const early = isAgain ? (this.#kept ?? []) : this.#early;
    this.#early = [];
    upstream.on("drain", () => this.#resume());
    for (const chunk of early) this.#write(upstream, chunk);
    if (this.#hasEnded) upstream.end();
    else if (!upstream.writableNeedDrain) this.#resume();
  }

  /** Passes nothing more on. Idempotent. */
  stop(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#early = [];
    this.#kept = undefined;
    this.#charge(0);
    // What the client still sends is read and dropped.
    if (!this.#request.destroyed) this.#request.resume();
  }

  #take(chunk: Buffer): void {
    if (this.#isStopped) return;
    if (this.#translated === undefined) this.#pass(ownBytes(chunk));
    else this.#translate(chunk, this.#translated);
  }

  #translate(chunk: Buffer, { translator, failed }: RequestTranslation): void {
    const heldBefore = translator.heldBytes;
    try {
      for (const frame of translator.pass(chunk)) this.#pass(frame);
      this.#hold(translator.heldBytes - heldBefore);
    } catch (error) {
      failed(error);
    }
  }

  /** May stop this. */
  #pass(bytes: Buffer): void {
    this.#keep(bytes);
    this.#hold(bytes.length);
    if (this.#isStopped) return;
    if (this.#upstream !== undefined) {
      this.#write(this.#upstream, bytes);
    } else {
      this.#early.push(bytes);
      if (this.#held >= maxEarlyBytes) {
        this.#pause();
        this.#read();
      }
    }
  }

  #keep(bytes: Buffer): void {
    if (this.#kept === undefined) return;
    this.#keptBytes += bytes.length;
    if (this.#keptBytes <= maxEarlyBytes) this.#kept.push(bytes);
    else {
      this.#kept = undefined;
      this.#keptBytes = 0;
    }
  }

  #read(): void {
    const onRead = this.#onRead;
    this.#onRead = undefined;
    if (!this.#isStopped) onRead?.();
  }

  #write(upstream: UpstreamStream, bytes: Buffer): void {
    const hasRoom = upstream.write(bytes, () => this.#hold(-bytes.length));
    if (!hasRoom) this.#pause();
  }

  #pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#request.pause();
    this.#hold(windowBytes);
  }

  #resume(): void {
    if (!this.#isPaused || this.#isStopped) return;
    this.#isPaused = false;
    this.#hold(-windowBytes);
    this.#request.resume();
  }

  /** Charges what is held. May stop this. */
  #hold(by: number): void {
    this.#held += by;
    if (!this.#isStopped) this.#charge(this.#held + this.#keptBytes);
  }
}
