import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The status page, as one document, and the policy that allows its own style and script and nothing else. */
export interface StatusPage {
  readonly html: string;
  readonly contentSecurityPolicy: string;
}

/** Reads the page from its files. */
export function loadStatusPage(): StatusPage {
  const [html, css, js] = ["status.html", "status.css", "status.js"].map((name) =>
    readFileSync(new URL(`./page/${name}`, import.meta.url), "utf8"),
  ) as [string, string, string];
  return {
    // Functions, since a text may contain the special patterns of `replace`.
    html: html
      .replace(/<style>.*<\/style>/s, () => `<style>${css}</style>`)
      .replace(/<script>.*<\/script>/s, () => `<script>${js}</script>`),
    contentSecurityPolicy: [
      "default-src 'none'",
      `style-src '${hashOf(css)}'`,
      `script-src '${hashOf(js)}'`,
      "connect-src 'self'",
      "img-src data:",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; "),
  };
}

function hashOf(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}
