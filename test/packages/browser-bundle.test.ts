import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundler } from "../../scripts/bundler.ts";
import { InstalledApp } from "./installed-app.ts";

let app: InstalledApp | undefined;

beforeAll(async () => {
  app = await InstalledApp.with("watch-fanout-client");
  // It compiles and packs the package, and installs it.
}, 300_000);

afterAll(() => app?.remove());

/** Bundles a module of an app for browsers, as it would be published. Returns its files, and what the bundler warned of. */
async function bundle(source: string) {
  const folder = app?.folder ?? "";
  const input = join(folder, "src/main.js");
  mkdirSync(join(folder, "src"), { recursive: true });
  writeFileSync(input, source);
  const warnings: string[] = [];
  const bundle = await bundler().rolldown({
    ...{ input, platform: "browser", cwd: folder },
    onLog: (level: string, { message }: { readonly message: string }) =>
      warnings.push(`${level}: ${message}`),
  });
  const { output } = await bundle.generate({ format: "esm", minify: true });
  await bundle.close();
  const code = output.map((each) => each.code ?? "").join("\n");
  return { output, code, warnings };
}

describe("The package of the client, bundled for browsers,", () => {
  test("needs no module of Node.js, no polyfill and no code that is made at run time", async () => {
    const { code, warnings } = await bundle('export * from "watch-fanout-client";');
    expect(warnings).toEqual([]);
    expect(code).not.toMatch(/\bfrom\s*["'](node:|[a-z@])|\brequire\(["']/);
    expect(code).not.toMatch(/import\(["'](node:|[a-z@])/);
    expect(code).not.toMatch(/\bnew Function\(|\beval\(/);
  });

  test("is of at most 195 kB, and 62 kB compressed, with an informer", async () => {
    const { code } = await bundle(
      'import { connect, jsonValues } from "watch-fanout-client";\n' +
        'export const pods = connect({ address: "/" }).resource("pods", jsonValues()).informer();',
    );
    const bytes = Buffer.byteLength(code);
    const compressed = gzipSync(code).byteLength;
    process.stderr.write(`The bundle of an informer: ${bytes} bytes, ${compressed} by gzip.\n`);
    expect(bytes).toBeGreaterThan(20_000);
    expect(bytes).toBeLessThan(195_000);
    expect(compressed).toBeLessThan(62_000);
  });

  test("is what the address watch-fanout-client/browser names as well", async () => {
    const { code, warnings } = await bundle(
      'export { connect } from "watch-fanout-client/browser";',
    );
    expect([warnings, code.includes("connect-protocol-version")]).toEqual([[], true]);
  });
});
