#!/usr/bin/env bash
# Writes the published image, such as ghcr.io/me/lipt:0.1.0, into the compiled pipelines, the manifests, and the overlays
# that the pages show.
set -euo pipefail
image="$1" version="${1##*:}"
files=(pipelines/lipt.yaml pipelines/ingest.yaml pipelines/compare.yaml manifests/base/workflowtemplate.yaml)
for file in "${files[@]}"; do grep -q " lipt:$version$" "$file"; done
sed -i "s| lipt:$version$| $image|; s|'lipt:$version'|'$image'|" "${files[@]}"
overlay=manifests/overlays/kind/kustomization.yaml
sed -i "s|^- name: lipt$|&\n  newName: ${image%:*}|" "$overlay"
grep -q "kind load docker-image" "$overlay"
sed -i "/kind load docker-image/d" "$overlay"  # nodes pull the published image
# An overlay on top of overlays/kind sees this name, no longer `lipt`.
pages=(manifests/README.md docs/howto/cluster-install.md)
for page in "${pages[@]}"; do grep -q "{name: lipt, newName" "$page"; done
sed -i "s|{name: lipt, newName|{name: ${image%:*}, newName|" "${pages[@]}"
