import type { Endpoint } from "../calls/endpoints.ts";
import type { RemoteWatch } from "./remote-watch.ts";

/**
 * Requests progress from the servers of watches: makes a server look up the current revision, which it then sends to
 * its streams, and notifies those that have reached it. One request per server at a time, since a response covers only
 * requests from before it was sent.
 */
export class ServerRevisionProbe {
  readonly #currentRevision: (server: Endpoint) => Promise<number>;
  readonly #watches: ReadonlySet<RemoteWatch>;
  /** The servers with a request in flight, and whether to repeat it afterwards. */
  readonly #inFlight = new Map<Endpoint, { isRepeated: boolean }>();

  /** `currentRevision` reads the store's revision through this server. */
  constructor(
    currentRevision: (server: Endpoint) => Promise<number>,
    watches: ReadonlySet<RemoteWatch>,
  ) {
    this.#currentRevision = currentRevision;
    this.#watches = watches;
  }

  request(server: Endpoint): void {
    const inFlight = this.#inFlight.get(server);
    if (inFlight !== undefined) {
      inFlight.isRepeated = true;
      return;
    }
    const request = { isRepeated: false };
    this.#inFlight.set(server, request);
    this.#currentRevision(server)
      .then(
        (revision) => {
          for (const watch of this.#watches) {
            if (watch.server === server) watch.reached(revision);
          }
        },
        // If the server does not respond, its streams end, which notifies the requesters.
        () => {},
      )
      .finally(() => {
        this.#inFlight.delete(server);
        const isWatched = [...this.#watches].some((watch) => watch.server === server);
        if (request.isRepeated && isWatched) this.request(server);
      });
  }
}
