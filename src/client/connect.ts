import type { ConnectOptions } from "./calls/options.ts";
import { Client } from "./client.ts";
import { nodePlatform } from "./transport/node-platform.ts";

export type { Client } from "./client.ts";

/**
 * Creates a client. No connection is opened before the first call. Throws INVALID_REQUEST for an invalid address,
 * unusable TLS options, or a timeout, limit or number of attempts that is not above 0.
 */
export function connect(options: ConnectOptions): Client {
  return new Client(options, nodePlatform);
}
