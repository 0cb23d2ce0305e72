import { Client, credentials } from "@grpc/grpc-js";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Tier } from "../relay/tiers.ts";
import { TestClient } from "../server/test-client.ts";
import { adminUrl, openWatches } from "../status/streaming-service.ts";
import { findChromium, launchChromium, openPage } from "./chromium.ts";

const isAbsent = findChromium() === undefined;
if (isAbsent) {
  process.stderr.write("No Chromium is installed (or named by CHROMIUM_BIN): skipped.\n");
}

const [idle, hot] = [9_000, 1_000];

describe.skipIf(isAbsent)("The status page, with 10,000 streams", () => {
  let tier: Tier;
  let browser: Browser;
  let client: TestClient;
  let writer: TestClient;

  beforeAll(async () => {
    browser = await launchChromium();
    tier = await Tier.start({});
    client = new TestClient(tier.port);
    // A connection of its own: the other one has as many calls as it may.
    const ownConnection = { "grpc.use_local_subchannel_pool": 1 };
    writer = new TestClient(
      new Client(`localhost:${tier.port}`, credentials.createInsecure(), ownConnection),
    );
    const some = (count: number) => Array.from({ length: count }, (_, i) => i);
    await openWatches(
      client,
      some(idle).map((i) => ({ key: `idle/${i}` })),
    );
    await openWatches(
      client,
      some(hot).map((i) => ({ prefix: `hot/${i}` })),
    );
  });

  afterAll(async () => {
    await browser?.close();
    client?.close();
    writer?.close();
    await tier?.stop();
  });

  async function open(colorScheme: "light" | "dark" = "light"): Promise<Page> {
    const page = await openPage(browser, { colorScheme, isQuiet: true });
    await page.goto(adminUrl(tier, "/"));
    await page.locator("#connection", { hasText: "updated" }).waitFor();
    await page.locator("#groups > tbody > tr").first().waitFor();
    return page;
  }

  /** Opens the page with the list of single streams, the oldest first. */
  async function openList(): Promise<Page> {
    const page = await open();
    await page.locator("#all-streams > summary").click();
    await page.locator("#matched", { hasText: "streams" }).waitFor();
    await page.locator("#stream-table th", { hasText: "Age" }).getByRole("button").click();
    await rows(page).first().getByText("key idle/0", { exact: true }).waitFor();
    return page;
  }

  const rows = (page: Page) => page.locator("#stream-table tbody tr");
  const cells = (page: Page, column: number) =>
    page.locator(`#stream-table tbody tr > :nth-child(${column})`).allTextContents();

  test("shows the verdict, the resource, the process, the group and the first streams", async () => {
    const page = await openList();
    // This process may have held up its own event loop as it opened them.
    expect(await page.locator("#level").textContent()).toMatch(/^(ok|degraded)$/);
    expect(await page.locator("#tiles dd").first().textContent()).toBe("10,00010,000 live");
    // All of one client, with more scopes than are distinguished.
    expect(await page.locator("#groups > tbody > tr").allTextContents()).toEqual([
      expect.stringMatching(/^anonymous at 127\.0\.0\.1live10,0000–0default.*various$/),
    ]);
    expect(await page.locator("#resources tbody th").textContent()).toBe("default");
    expect(await page.locator("#resources tbody td").first().textContent()).toBe("connected");
    expect(await page.locator("#processes tbody th").textContent()).toBe("service");
    expect(await rows(page).count()).toBe(50);
    expect((await cells(page, 4)).slice(0, 2)).toEqual(["key idle/0", "key idle/1"]);
  });

  test("lists the streams of a group", async () => {
    const page = await open();
    await page.locator("#groups > tbody > tr button").first().click();
    await page.locator("#groups tr.members tbody tr").nth(19).waitFor();
    await page.getByRole("button", { name: "List all of them" }).click();
    await page.locator("#matched", { hasText: "10,000 of 10,000 streams" }).waitFor();
    expect(await page.locator("#only-group span").textContent()).toBe(
      "Only anonymous at 127.0.0.1, live, various.",
    );
    await page.getByRole("button", { name: "Show all" }).click();
    await page.locator("#matched", { hasText: /^10,000 streams/ }).waitFor();
  });

  test("sorts by a heading, with the keyboard too, and reports the order", async () => {
    const page = await openList();
    const heading = page.locator("#stream-table th", { hasText: "Scope" });
    await heading.getByRole("button").focus();
    await page.keyboard.press("Enter");
    await rows(page).first().getByText("prefix hot/0", { exact: true }).waitFor();
    expect(await heading.getAttribute("aria-sort")).toBe("ascending");
    await page.keyboard.press("Space");
    await rows(page).first().getByText("key idle/999", { exact: true }).waitFor();
    expect(await heading.getAttribute("aria-sort")).toBe("descending");
    expect(await page.locator("#stream-table th[aria-sort]").count()).toBe(1);
    expect(await heading.getByRole("button").evaluate((each) => each.matches(":focus"))).toBe(true);
  });

  test("searches while 1,000 streams change, and shows what they get", async () => {
    const page = await openList();
    let isOpen = true;
    onTestFinished(async () => {
      isOpen = false;
      await writing;
    });
    const writing = (async () => {
      for (let i = 0; isOpen; i = (i + 1) % hot) {
        await writer.put({ resource: "default", key: `hot/${i}`, value: Buffer.from("x") });
      }
    })();
    await page.getByLabel("Search identities").fill("HOT/77");
    // hot/77 and hot/770 to hot/779.
    await page.locator("#matched", { hasText: "11 of 10,000 streams" }).waitFor();
    expect(await rows(page).count()).toBe(11);
    expect(await page.locator("#announced").textContent()).toContain("11 of 10,000 streams");
    await page
      .locator("#plots .value", { hasText: /^(?!–)[1-9]/ })
      .first()
      .waitFor();
    await page.locator("#plots figure", { hasText: "Dispatch latency" }).getByText("ms").waitFor();
    const revision = page.locator("#resources tbody tr > :nth-child(3)");
    const before = await revision.textContent();
    await revision.filter({ hasNotText: new RegExp(`^${before}$`) }).waitFor();
  });

  test("pages through the streams", async () => {
    const page = await openList();
    await page.getByLabel("Search identities").fill("idle/12");
    await page.locator("#matched", { hasText: "111 of 10,000" }).waitFor();
    const seen = await cells(page, 4);
    for (const [number, count] of [
      [2, 50],
      [3, 11],
    ] as const) {
      await page.getByRole("button", { name: "Next" }).click();
      await page.locator("#matched", { hasText: `page ${number}` }).waitFor();
      expect(await rows(page).count()).toBe(count);
      seen.push(...(await cells(page, 4)));
    }
    expect(new Set(seen).size).toBe(111);
    expect(await page.getByRole("button", { name: "Next" }).isDisabled()).toBe(true);
    await page.getByRole("button", { name: "First page" }).click();
    await page.locator("#matched", { hasText: /^(?!.*page)/ }).waitFor();
    expect(await cells(page, 4)).toEqual(seen.slice(0, 50));
  });

  test("waits for a service that takes longer than the interval of the updates", async () => {
    const page = await browser.newPage();
    onTestFinished(() => page.close());
    await page.clock.install();
    const held: (() => Promise<void>)[] = [];
    await page.route("**/status.json?*", (route) => {
      held.push(() => route.continue());
    });
    await page.goto(adminUrl(tier, "/"));
    await page.locator("#all-streams > summary").click();
    await expect.poll(() => held.length, { timeout: 20_000 }).toBe(1);
    await page.clock.runFor(9_000);
    // It has not been requested again, which would have dropped the first one.
    expect(held).toHaveLength(1);
    await held[0]?.();
    await rows(page).first().waitFor();
  });

  test("shows texts of clients as text", async () => {
    const key = "<img src=x onerror=alert(1)><b>bold</b>";
    const [watch] = await openWatches(writer, [{ key }]);
    onTestFinished(() => watch?.cancel());
    const page = await openList();
    await page.getByLabel("Search identities").fill("onerror");
    await rows(page).first().getByText(`key ${key}`).waitFor();
    expect(await page.locator("main table b, main img").count()).toBe(0);
  });

  test.each(["light", "dark"] as const)("has no finding of axe in the %s theme", async (theme) => {
    const page = await open(theme);
    await page.locator("#all-streams > summary").click();
    await rows(page).first().waitFor();
    await writer.put({ resource: "default", key: "hot/1", value: Buffer.from("x") });
    // The Content-Security-Policy of the page does not bind the debugger.
    await page.evaluate(axe.source);
    const found: { readonly violations: readonly { id: string; nodes: { html: string }[] }[] } =
      await page.evaluate(`axe.run(document, { resultTypes: ["violations"] })`);
    expect(
      found.violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => html) })),
    ).toEqual([]);
  });

  test("stays usable when the service drains: it says that it is not connected", async () => {
    const other = await Tier.start({});
    const page = await browser.newPage();
    onTestFinished(() => page.close());
    await page.goto(adminUrl(other, "/"));
    await page.locator("#connection", { hasText: "updated" }).waitFor();
    await other.stop();
    await page.locator("#connection", { hasText: "Not connected" }).waitFor();
    expect(await page.locator("#level").textContent()).toBe("unknown");
  });
});
