/**
 * The client library in a browser, and in other runtimes that have `fetch`: the same as in Node.js, by Connect instead of gRPC,
 * without what only services need (controllers, coordination, RemoteStorage).
 *
 *     const client = connect({ address: "/" });
 *     const pods = client.resource("pods", jsonValues<Pod>()).informer();
 */

import type { ConnectOptions } from "./calls/options.ts";
import { Client } from "./client.ts";
import { browserPlatform } from "./transport/browser-platform.ts";

/**
 * Creates a client. Nothing is sent before the first call. Throws INVALID_REQUEST for an address that is no URL, for TLS options,
 * and for a timeout, limit or number of attempts that is not above 0.
 */
export function connect(options: ConnectOptions): Client {
  return new Client(options, browserPlatform);
}

export * from "./shared-exports.ts";
