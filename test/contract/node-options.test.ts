import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

test.each([
  ["the command from the sources", "bin/watch-fanout", /(--max-\S+) /],
  ["npm start", "package.json", /"start": "node .*(--max-\S+) /],
  ["the container image", "deploy/Dockerfile", /^ENTRYPOINT .*"(--max-[^"]+)"/m],
  ["the systemd unit", "deploy/systemd/watch-fanout.service", /NODE_OPTIONS=(--max-[^"]+)"/],
  ["the benchmarks", "bench/servers.ts", /"(--max-[^"]+)",\s+serviceMain,\s+"serve"/],
])("%s bounds V8's young generation as docs/limits.md says", (_which, file, pattern) => {
  const [, option] = pattern.exec(readFileSync(file, "utf8")) ?? [];
  expect(option).toBe("--max-semi-space-size=8");
  expect(readFileSync("docs/limits.md", "utf8")).toContain(`\`NODE_OPTIONS=${option}\``);
});
