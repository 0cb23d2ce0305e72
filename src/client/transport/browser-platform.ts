import { invalidRequest } from "../../base/errors.ts";
import { browserGlobals } from "./browser-globals.ts";
import { FetchTransport } from "./fetch-transport.ts";
import type { Platform } from "./platform.ts";

/** A browser, or another runtime with `fetch`: Connect. */
export const browserPlatform: Platform = {
  hasRequestStreams: false,

  servers({ address, tls }, settings, clock) {
    if (tls !== undefined) {
      throw invalidRequest("tls", "A browser has certificates of its own. Leave tls out.");
    }
    return (typeof address === "string" ? [address] : address).map((text) => {
      const url = urlOf(text);
      return { text, open: () => new FetchTransport(url, settings, clock) };
    });
  },

  async readTextFile() {
    throw new Error("a browser has no files");
  },
};

/** The URL of a server without a slash at its end. Throws INVALID_REQUEST for any other text. */
function urlOf(text: string): string {
  const url = URL.parse(text, browserGlobals.location?.href);
  if (url?.protocol === "https:" || url?.protocol === "http:") {
    return url.origin + url.pathname.replace(/\/$/, "");
  }
  throw invalidRequest(
    "address",
    `${JSON.stringify(text)} is not a URL. Write https://HOST:PORT, or / for the site of the page.`,
  );
}
