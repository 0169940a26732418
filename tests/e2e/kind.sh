#!/usr/bin/env bash
# The cluster that the end-to-end tests run on, made with kind. Another kind of cluster: a program with these verbs, named
# by LIPT_E2E_CLUSTER.
#
# KIND_NODE_IMAGE: of the nodes, instead of kind's own choice. ARGO_VERSION: of Argo Workflows, such as v3.7.14.
#
#   up                      start it, with Argo Workflows and two GPU workers; fine when it is up; prints its KUBECONFIG
#   image TAG               build the image and give it to the nodes
#   node-stop NODE          pull the plug
#   node-start NODE         boot it again; returns when it is Ready
#   on-node NODE COMMAND    run a command as root inside a node
set -euo pipefail
cd "$(dirname "$0")/../.."
name=lipt-e2e
argo=https://github.com/argoproj/argo-workflows/releases/download/v4.1.2/install.yaml
argo="${argo/v4.1.2/${ARGO_VERSION:-v4.1.2}}"
export KUBECONFIG="${TMPDIR:-/tmp}/$name.kubeconfig"

gpus() { # one `nvidia.com/gpu` per worker: counted and scheduled, no device behind it
    for node in "$name-worker" "$name-worker2"; do
        kubectl label --overwrite node "$node" nvidia.com/gpu.present=true >&2
        kubectl taint --overwrite node "$node" nvidia.com/gpu=present:NoSchedule >&2
        kubectl patch node "$node" --subresource=status --type=merge \
            -p '{"status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}' >&2
    done
}

case "$1" in
up)
    if ! kind get clusters | grep -qx "$name"; then
        kind create cluster --name "$name" --kubeconfig "$KUBECONFIG" ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"} \
            --wait 120s --config - >&2 <<'NODES'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
- role: worker
- role: worker
NODES
        kubectl taint node "$name-control-plane" node-role.kubernetes.io/control-plane- >&2 || true
        gpus # tainted before anything is placed: only runs may lose a node
        kubectl create namespace argo >&2
        kubectl apply --server-side -n argo -f "$argo" >&2
        kubectl -n argo set env deployment/workflow-controller DEFAULT_REQUEUE_TIME=1s >&2
        kubectl -n argo rollout status deployment/workflow-controller --timeout=5m >&2
    fi
    gpus
    echo "$KUBECONFIG"
    ;;
image)
    make image IMAGE="$2" VARIANT="${VARIANT:-cpu}" >&2
    kind load docker-image "$2" --name "$name" >&2
    ;;
node-stop) docker stop -t 0 "$2" >&2 ;;
node-start)
    docker start "$2" >&2
    kubectl wait --for=condition=Ready "node/$2" --timeout=3m >&2
    gpus
    ;;
on-node)
    node="$2"
    shift 2
    docker exec "$node" "$@"
    ;;
*)
    echo "unknown verb $1" >&2
    exit 2
    ;;
esac
