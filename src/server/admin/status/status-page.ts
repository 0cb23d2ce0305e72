import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The modules of the page's script. */
const modules = ["status", "format", "groups", "overview", "plots", "streams", "table", "tables"];

/** The paths of the modules. */
export const scriptPaths: readonly string[] = modules.map((name) => `/status/${name}.js`);

/** The status page, and the policy that allows its own style and scripts and nothing else. */
export interface StatusPage {
  readonly html: string;
  readonly contentSecurityPolicy: string;
  /** The modules, by their paths. */
  readonly scripts: ReadonlyMap<string, string>;
}

/** Reads the page from its files. */
export function loadStatusPage(): StatusPage {
  const css = contentOf("status.css") + contentOf("overview.css");
  return {
    // A function, since a text may contain the special patterns of `replace`.
    html: contentOf("status.html").replace(/<style>.*<\/style>/s, () => `<style>${css}</style>`),
    scripts: new Map(scriptPaths.map((path) => [path, contentOf(path.slice("/status/".length))])),
    contentSecurityPolicy: [
      "default-src 'none'",
      `style-src '${hashOf(css)}'`,
      // Everything else that this port serves has a type that is no script.
      "script-src 'self'",
      "connect-src 'self'",
      "img-src data:",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
  };
}

function contentOf(name: string): string {
  return readFileSync(new URL(`./page/${name}`, import.meta.url), "utf8");
}

function hashOf(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}
