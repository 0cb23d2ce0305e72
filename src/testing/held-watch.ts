import type { WatchBatch } from "../model/event.ts";
import type { RoundReader, WatchStatus, WatchStream } from "../storage/storage.ts";
import type { Fault } from "./fault.ts";

interface HeldWatchOptions {
  /** What holds the watch now. */
  readonly hold: () => Fault | undefined;
  /** A batch was read, or the watch was closed. */
  readonly onActivity: () => void;
  readonly onClosed: () => void;
}

/** A watch whose events, and whose end, a test can hold. */
export class HeldWatch implements WatchStream {
  readonly #inner: WatchStream;
  readonly #options: HeldWatchOptions;
  #listener: (() => void) | undefined;
  /** Whether the reader has missed a batch, or a call of its listener. */
  #hasMissed = false;

  constructor(inner: WatchStream, options: HeldWatchOptions) {
    this.#inner = inner;
    this.#options = options;
    inner.onReadable(() => {
      if (!this.#isNowHeld(true)) this.#listener?.();
    });
  }

  get ended(): Error | null | undefined {
    return this.#options.hold() === undefined ? this.#inner.ended : undefined;
  }

  get hasPending(): boolean | undefined {
    return this.#options.hold() === undefined ? this.#inner.hasPending : false;
  }

  get syncedRevision(): number | undefined {
    return this.#inner.syncedRevision;
  }

  get status(): WatchStatus | undefined {
    return this.#inner.status;
  }

  get heldBytes(): number {
    return this.#inner.heldBytes ?? 0;
  }

  read(): WatchBatch | undefined {
    if (this.#isNowHeld(this.#inner.hasPending !== false)) return undefined;
    const batch = this.#inner.read();
    if (batch !== undefined) this.#options.onActivity();
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  readAfterOffers(reader: RoundReader): void {
    if (this.#inner.readAfterOffers === undefined) reader.roundOffered();
    else this.#inner.readAfterOffers(reader);
  }

  accepted(): void {
    this.#inner.accepted?.();
  }

  /** The hold is over. */
  release(): void {
    if (!this.#hasMissed) return;
    this.#hasMissed = false;
    this.#listener?.();
  }

  close(): void {
    this.#inner.close();
    this.#options.onActivity();
    this.#options.onClosed();
  }

  /** `hasMore`: there is something that is held. */
  #isNowHeld(hasMore: boolean): boolean {
    const hold = this.#options.hold();
    if (hold === undefined) return false;
    this.#hasMissed = true;
    if (hasMore) hold.happens();
    return true;
  }
}
