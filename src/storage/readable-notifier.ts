/**
 * Calls the listener of a WatchStream, at most once for each `read` that returned nothing. The call is made in a
 * microtask, so never from within `read`, `close` or the listener.
 */
export class ReadableNotifier {
  readonly #isReadable: () => boolean;
  listener: () => void = () => {};
  /** To be set by each read: whether it returned nothing and more may follow. A new stream counts as read. */
  isWaiting = true;
  #isScheduled = false;

  /** `isReadable` returns whether a read would return a batch or the stream has ended. */
  constructor(isReadable: () => boolean) {
    this.#isReadable = isReadable;
  }

  /** To be called when there is something to read, or the stream has ended. */
  notify(): void {
    if (!this.isWaiting || this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      if (!this.isWaiting || !this.#isReadable()) return;
      this.isWaiting = false;
      this.listener();
    });
  }
}
