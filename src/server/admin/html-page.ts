import { createHash } from "node:crypto";
import type { Http1Page } from "../listener/http1.ts";

/**
 * A page of the admin port: the HTML with the style in it, and the policy that allows this style and the scripts of the
 * port, and nothing else.
 */
export function htmlPage(html: string, css: string): Http1Page {
  const hash = createHash("sha256").update(css).digest("base64");
  return {
    status: 200,
    // A function, since a text may contain the special patterns of `replace`.
    body: html.replace(/<style>.*<\/style>/s, () => `<style>${css}</style>`),
    contentType: "text/html; charset=utf-8",
    headers: {
      "content-security-policy": [
        "default-src 'none'",
        `style-src 'sha256-${hash}'`,
        // Everything else that this port serves has a type that is no script.
        "script-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ].join("; "),
      "referrer-policy": "no-referrer",
      "x-frame-options": "DENY",
    },
  };
}

/** A module of the script of a page. */
export function scriptPage(script: string): Http1Page {
  return { status: 200, body: script, contentType: "text/javascript; charset=utf-8" };
}
