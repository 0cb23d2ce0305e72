import { expect, test } from "vitest";
import { mergeMetrics } from "../../src/cli/serve/workers.ts";

test("The metrics of workers get a label, and stand with those of the same name.", () => {
  const main = `# HELP a_total About a.
# TYPE a_total counter
a_total{kind="x"} 1
# HELP b About b.
# TYPE b gauge
b 2
`;
  const worker = `# HELP b About b.
# TYPE b gauge
b 3
b{} 4
# HELP c Of workers alone.
# TYPE c histogram
c_bucket{path="} {",le="+Inf"} 5
c_sum 6
`;
  const workers = new Map([
    [1, worker],
    [2, worker],
  ]);
  expect(mergeMetrics(main, workers)).toBe(`# HELP a_total About a.
# TYPE a_total counter
a_total{kind="x"} 1
# HELP b About b.
# TYPE b gauge
b 2
b{worker="1"} 3
b{worker="1"} 4
b{worker="2"} 3
b{worker="2"} 4
# HELP c Of workers alone.
# TYPE c histogram
c_bucket{worker="1",path="} {",le="+Inf"} 5
c_sum{worker="1"} 6
c_bucket{worker="2",path="} {",le="+Inf"} 5
c_sum{worker="2"} 6
`);
});
