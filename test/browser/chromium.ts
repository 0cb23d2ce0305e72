import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import axe from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { expect, onTestFinished } from "vitest";

/** How long a page may take for anything, in milliseconds. A busy machine takes many times as long as an idle one. */
const patienceMs = 120_000;

/** The Chromium that CHROMIUM_BIN names, or that is installed; undefined without one. */
export function findChromium(): string | undefined {
  const { CHROMIUM_BIN, PATH = "" } = process.env;
  if (CHROMIUM_BIN !== undefined && CHROMIUM_BIN !== "") return CHROMIUM_BIN;
  const names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
  const paths = PATH.split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));
  return paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

export function launchChromium(...args: readonly string[]): Promise<Browser> {
  return chromium.launch({
    executablePath: findChromium() ?? "",
    // A page of another site may call this machine otherwise only if the user permits it.
    args: ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks", ...args],
    timeout: patienceMs,
  });
}

/**
 * Opens an empty page. The test fails for an error that no script of it handles, or of its Content-Security-Policy, or, with
 * `isQuiet`, for any error on its console.
 */
export async function openPage(
  browser: Browser,
  { isQuiet = false, ...options }: BrowserContextOptions & { readonly isQuiet?: boolean } = {},
): Promise<Page> {
  const viewport = { width: 1_280, height: 900 };
  const context = await browser.newContext({ viewport, ...options });
  context.setDefaultTimeout(patienceMs);
  const page = await context.newPage();
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => {
    const text = message.text();
    if (isQuiet ? message.type() === "error" : /Content.Security.Policy/i.test(text))
      problems.push(text);
  });
  onTestFinished(async () => {
    await context.close();
    expect(problems).toEqual([]);
  });
  return page;
}

/** Where to write screenshots; undefined: none. */
const folder = process.env["SCREENSHOTS"];

/** Checks the page with axe, in both themes and narrow, and that nothing is wider than the page. Takes its pictures. */
export async function inspect(page: Page, name: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    for (const [suffix, width] of [
      ["", 1_280],
      ["-narrow", 420],
    ] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.evaluate(axe.source);
      const found: { readonly violations: readonly { id: string; nodes: { html: string }[] }[] } =
        await page.evaluate(`axe.run(document, { resultTypes: ["violations"] })`);
      expect(
        found.violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => html) })),
      ).toEqual([]);
      const overflow = "document.documentElement.scrollWidth - innerWidth";
      expect(await page.evaluate(overflow)).toBeLessThanOrEqual(0);
      if (folder === undefined) continue;
      const path = `${folder}/${name}-${colorScheme}${suffix}`;
      await page.screenshot({ path: `${path}.png` });
      await page.screenshot({ path: `${path}-full.png`, fullPage: true });
    }
  }
  await page.setViewportSize({ width: 1_280, height: 900 });
}
