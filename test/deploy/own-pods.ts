import { dirname } from "node:path";
import { expect } from "vitest";
import { type Manifest, Pod, selects, workloadsOf } from "./built-manifests.ts";

/**
 * Expects that an embedded store keeps nothing, or has a volume that outlives its pod, which is the only one. Returns the
 * number of those with a volume.
 */
export function expectKeptData(manifests: readonly Manifest[]): number {
  let kept = 0;
  for (const workload of workloadsOf(manifests)) {
    const pod = new Pod(workload, manifests);
    const { data } = pod.config();
    if (data?.path === undefined) continue;
    kept++;
    const { replicas, volumeClaimTemplates } = workload.spec;
    expect({ kind: workload.kind, replicas }).toEqual({ kind: "StatefulSet", replicas: 1 });
    const [claim] = volumeClaimTemplates;
    // Its folder is made by the service, whose user does not own the root of the volume.
    const mountPath = dirname(dirname(data.path));
    expect(pod.container.volumeMounts).toContainEqual({ name: claim.metadata.name, mountPath });
    expect(pod.spec.securityContext.fsGroup).toBe(pod.spec.securityContext.runAsUser);
    const storage = /^(\d+)Gi$/.exec(claim.spec.resources.requests.storage)?.[1];
    // A backup is a second copy.
    expect(Number(storage) * 2 ** 30).toBeGreaterThanOrEqual(2 * data.maxBytes);
  }
  return kept;
}

/**
 * Expects that each workload, Service, budget, scaler and policy selects the pods of one workload, and that a workload
 * refers to its own service account, and a StatefulSet to its own Service.
 */
export function expectOwnPods(manifests: readonly Manifest[]): void {
  const ofKind = (kind: string): readonly Manifest[] =>
    manifests.filter((manifest) => manifest.kind === kind);
  const labels = workloadsOf(manifests).map(({ spec }) => spec.template.metadata.labels);
  for (const [index, workload] of workloadsOf(manifests).entries()) {
    const { selector, template } = workload.spec;
    expect(labels.filter((each) => selects(selector.matchLabels, each))).toHaveLength(1);
    for (const { labelSelector } of template.spec.topologySpreadConstraints ?? []) {
      expect(selects(labelSelector.matchLabels, labels[index])).toBe(true);
    }
    expect(template.spec.serviceAccountName).toBe(workload.metadata.name);
    const accounts = ofKind("ServiceAccount").map(({ metadata }) => metadata.name);
    expect(accounts).toContain(template.spec.serviceAccountName);
    if (workload.kind === "StatefulSet") {
      const services = ofKind("Service").map(({ metadata }) => metadata.name);
      expect(services).toContain(workload.spec.serviceName);
    }
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
  const names = workloadsOf(manifests).map(({ metadata }) => metadata.name);
  for (const { spec } of ofKind("HorizontalPodAutoscaler")) {
    expect(names).toContain(spec.scaleTargetRef.name);
    const scaled = workloadsOf(manifests).find(
      ({ metadata }) => metadata.name === spec.scaleTargetRef.name,
    );
    expect(scaled?.spec.replicas).toBeUndefined();
  }
  const services = ofKind("Service").map(({ metadata }) => metadata.labels ?? {});
  for (const { spec } of ofKind("ServiceMonitor")) {
    expect(services.some((each) => selects(spec.selector.matchLabels, each))).toBe(true);
  }
}
