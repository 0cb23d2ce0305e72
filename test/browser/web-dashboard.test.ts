import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { bundler } from "../../scripts/bundler.ts";
import { withoutFiles } from "../../scripts/live-page.ts";
import { connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { findChromium, launchChromium, openPage } from "./chromium.ts";

const example = join(import.meta.dirname, "../../examples/web-dashboard");
const origin = "http://localhost:5173";

test.skipIf(findChromium() === undefined)(
  "The example of a dashboard in a browser counts objects as they change.",
  async () => {
    const served = await startServe(["--web-origin", origin]);
    onTestFinished(() => served.process[Symbol.asyncDispose]());
    await untilStatus(`${served.admin}/readyz`, 200);
    const bundle = await bundler().rolldown({
      ...{ input: join(example, "main.js"), platform: "browser", plugins: [withoutFiles] },
      resolve: { conditionNames: ["watch-fanout-source", "browser", "import"] },
    });
    const { output } = await bundle.generate({ format: "esm", codeSplitting: false });
    await bundle.close();
    const script = output[0]?.code ?? "";
    const html = readFileSync(join(example, "index.html"), "utf8");
    const browser = await launchChromium();
    onTestFinished(() => browser.close());
    const page = await openPage(browser);
    await page.route(`${origin}/**`, (route) =>
      route.request().url().endsWith(".js")
        ? route.fulfill({ body: script, contentType: "text/javascript" })
        : route.fulfill({
            body: html.replace("127.0.0.1:50051", served.grpc),
            contentType: "text/html",
          }),
    );
    const client = connect({ address: served.grpc });
    onTestFinished(() => client.close());
    const pods = client.resource("default", jsonValues<object>());
    await pods.put("a", { status: { phase: "Running" } });
    await page.goto(`${origin}/`);
    const cells = (): Promise<string[]> => page.locator("tbody td").allTextContents();
    await expect.poll(cells).toEqual(["Running", "1"]);
    await pods.put("b", { status: { phase: "Pending" } });
    await expect.poll(cells).toEqual(["Pending", "1", "Running", "1"]);
    await pods.put("b", { status: { phase: "Running" } });
    await expect.poll(cells).toEqual(["Running", "2"]);
    expect(await page.locator("#state").textContent()).toBe("Live");
  },
);
