/** What a browser has and Node.js has not. The types of the project are those of Node.js. */
interface BrowserGlobals {
  readonly location?: { readonly href: string };
  readonly navigator?: { readonly onLine?: boolean };
  addEventListener?(event: string, listener: () => void): void;
  removeEventListener?(event: string, listener: () => void): void;
}

export const browserGlobals: BrowserGlobals = globalThis as unknown as BrowserGlobals;
