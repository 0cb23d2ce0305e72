import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { bundler } from "../../scripts/bundler.ts";
import { withoutFiles } from "../../scripts/live-page.ts";
import type * as library from "../../src/client/browser.ts";
import { openPage } from "./chromium.ts";

/** What the scripts of tests find in the page: the library, and what they keep there. */
export interface LibraryPage {
  readonly library: typeof library;
  kept: unknown;
}

/** Where the pages of tests are. */
export const pageOrigin = "https://app.example";

/** A certificate for localhost. Pages accept any. */
export const localPair: { readonly cert: Buffer; readonly key: Buffer } = {
  cert: certificate("cert"),
  key: certificate("key"),
};

function certificate(name: string): Buffer {
  return readFileSync(join(import.meta.dirname, `../config/certificates/${name}.pem`));
}

let script: Promise<string> | undefined;

async function bundled(): Promise<string> {
  const input = "library-in-page";
  const source = join(import.meta.dirname, "../../src/client/browser.ts");
  const bundle = await bundler().rolldown({
    ...{ input, platform: "browser" },
    plugins: [
      withoutFiles,
      {
        name: input,
        resolveId: (id: string) => (id === input ? id : undefined),
        load: (id: string) =>
          id === input
            ? `import * as library from ${JSON.stringify(source)}; globalThis.library = library;`
            : undefined,
      },
    ],
  });
  const { output } = await bundle.generate({ format: "esm", codeSplitting: false });
  await bundle.close();
  return output[0]?.code ?? "";
}

/** Opens a page with the library. */
export async function openLibraryPage(browser: Browser): Promise<Page> {
  script ??= bundled();
  const body = await script;
  const page = await openPage(browser, { ignoreHTTPSErrors: true });
  await page.route(`${pageOrigin}/**`, (route) => {
    if (route.request().url().endsWith(".js")) {
      return route.fulfill({ body, contentType: "text/javascript" });
    }
    const html = '<!doctype html><title>app</title><script type="module" src="/app.js"></script>';
    // Without `unsafe-eval`, as pages should have it.
    const headers = { "content-security-policy": "script-src 'self'; connect-src *" };
    return route.fulfill({ body: html, contentType: "text/html", headers });
  });
  await page.goto(pageOrigin);
  await page.waitForFunction("globalThis.library !== undefined");
  return page;
}
