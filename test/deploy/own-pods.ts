import { expect } from "vitest";
import { deploymentsOf, type Manifest, selects } from "./built-manifests.ts";

/**
 * Expects that each Deployment, Service, budget, scaler and policy selects the pods of one Deployment, and that a
 * Deployment refers to its own service account.
 */
export function expectOwnPods(manifests: readonly Manifest[]): void {
  const ofKind = (kind: string): readonly Manifest[] =>
    manifests.filter((manifest) => manifest.kind === kind);
  const labels = deploymentsOf(manifests).map(({ spec }) => spec.template.metadata.labels);
  for (const [index, deployment] of deploymentsOf(manifests).entries()) {
    const { selector, template } = deployment.spec;
    expect(labels.filter((each) => selects(selector.matchLabels, each))).toHaveLength(1);
    for (const { labelSelector } of template.spec.topologySpreadConstraints) {
      expect(selects(labelSelector.matchLabels, labels[index])).toBe(true);
    }
    expect(template.spec.serviceAccountName).toBe(deployment.metadata.name);
    const accounts = ofKind("ServiceAccount").map(({ metadata }) => metadata.name);
    expect(accounts).toContain(template.spec.serviceAccountName);
  }
  const selectors = [
    ...ofKind("Service").map(({ spec }) => spec.selector),
    ...ofKind("PodDisruptionBudget").map(({ spec }) => spec.selector.matchLabels),
    ...ofKind("NetworkPolicy").map(({ spec }) => spec.podSelector.matchLabels),
  ];
  expect(selectors.length).toBeGreaterThan(0);
  for (const selector of selectors) {
    expect(labels.filter((each) => selects(selector, each))).toHaveLength(1);
  }
  const names = deploymentsOf(manifests).map(({ metadata }) => metadata.name);
  for (const { spec } of ofKind("HorizontalPodAutoscaler")) {
    expect(names).toContain(spec.scaleTargetRef.name);
    const scaled = deploymentsOf(manifests).find(
      ({ metadata }) => metadata.name === spec.scaleTargetRef.name,
    );
    expect(scaled?.spec.replicas).toBeUndefined();
  }
  const services = ofKind("Service").map(({ metadata }) => metadata.labels ?? {});
  for (const { spec } of ofKind("ServiceMonitor")) {
    expect(services.some((each) => selects(spec.selector.matchLabels, each))).toBe(true);
  }
}
