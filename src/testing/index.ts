/**
 * For the tests of controllers and other programs that use `watch-fanout/client`. docs/testing-controllers.md is an
 * introduction.
 *
 *     const clock = new TestClock();
 *     await using service = await startTestService({ resources: ["pods"], clock });
 *
 * It works with any test runner.
 */

export { Fault } from "./fault.ts";
export { TestClock } from "./test-clock.ts";
export {
  startTestService,
  type TestResourceOptions,
  TestService,
  type TestServiceOptions,
} from "./test-service.ts";
export { type UntilOptions, until } from "./until.ts";
