import type { Clock } from "../../base/clock.ts";
import type { ClientTls } from "./client-certificates.ts";
import type { ServerAddress, TransportSettings } from "./transport.ts";

/** Where the servers of a client are. */
export interface ServerOptions {
  /**
   * The address of the service, HOST:PORT or unix:PATH, or of several replicas of it. Calls and watches are spread over the
   * replicas; if one fails, its calls and watches move to the others. In a browser: the URL of its port, such as
   * `https://watch.example.com:50051`, or `/` for the site of the page.
   */
  readonly address: string | readonly string[];
  /** Default: without TLS. In a browser the URL says it, and the browser has the certificates. */
  readonly tls?: ClientTls | undefined;
}

/** What a client takes from where it runs: Node.js, or a browser. */
export interface Platform {
  /** Whether a call can send requests while it receives responses. */
  readonly hasRequestStreams: boolean;
  /** Throws INVALID_REQUEST for invalid addresses and unusable TLS options. */
  servers(
    options: ServerOptions,
    settings: TransportSettings,
    clock: Clock,
  ): readonly ServerAddress[];
  /** The text at the beginning of a file, up to `maxBytes`. */
  readTextFile(path: string, maxBytes: number): Promise<string>;
}
