import type { ServerResponse } from "node:http";
import type { Http1Page } from "../listener/http1.ts";

/** A response that is sent as it arises. */
export interface AdminEvents {
  /** Sends the head and the body. */
  begin(response: ServerResponse): void;
}

/** Pages that respond to GET requests by their path and query. */
export interface AdminPages {
  /** Whether it responds to requests of this path. */
  has(path: string): boolean;
  /** Rejects if the page could not be made, which is 500. */
  respond(path: string, query: string): Promise<Http1Page | AdminEvents>;
}
