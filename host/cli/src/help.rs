//! The longer texts of `--help`: what a command is for, by examples.

/// Of the program itself.
pub const PROGRAM: &str = "\
Examples:
  halfgnn device                                        what this machine offers
  halfgnn demo                                          half, float and plain half sums, side by side
  halfgnn train --dataset cora.npz --seeds 10           train on a graph of your own
  halfgnn bench spmm --graph kron:18 --json spmm.jsonl  time the kernels
  halfgnn report spmm.jsonl                             and look at the figures

`halfgnn COMMAND --help` has examples of each command.

Exit status:
  0    done, or ended by Ctrl-C with its results so far
  1    the run failed: the device, a launch, a loss that is not a number
  2    wrong usage or input: a flag, a file, a model that does not fit
  130  ended by Ctrl-C; train, demo, bench and report by a second one, or while ranks meet

Environment:
  CUDA_VISIBLE_DEVICES  GPUs that the driver shows; the first is taken
  HALFGNN_DATA          folder of datasets, where a name that is no file is looked for
  HALFGNN_PTX_DIR       folder of the kernels' PTX
  HALFGNN_LIBCUDA       the driver's library, where it is not found by its name
  HALFGNN_LIBNCCL       NCCL's library, likewise
  HALFGNN_RENDEZVOUS_KEY  the secret of ranks that meet at --rendezvous, the same for all
  HALFGNN_CPU_INSTRUCTIONS  plain, neon, avx2 or avx512, instead of the widest vectors that the CPU has
  RAYON_NUM_THREADS     threads of the CPU backend and of the emulator, at most four for each core
  RUST_LOG              what is logged to stderr, such as halfgnn=debug; goes before -v
  NO_COLOR              no colours";

/// Of `predict`.
pub const PREDICT: &str = "\
Examples:
  halfgnn train --dataset cora.npz --save cora.safetensors
  halfgnn predict --model cora.safetensors --dataset cora.npz --out classes.npy
  halfgnn predict --model cora.safetensors --dataset other.npz --out logits.npy --logits
  halfgnn predict --model cora.safetensors --dataset nodes.csv,edges.csv --out answers.csv --probabilities
  halfgnn predict --model cora.safetensors --dataset cora.npz --out embeddings.npy --layer 1
  halfgnn predict --model cora.safetensors --dataset cora.npz --out classes.npy --json - | jq '.test_accuracy // empty'

The graph may be another than the model was trained on, if its vertices have as many features, and may have no labels. In a .csv
vertices have the ids, and classes the names, that the tables have.";

/// Of `export`.
pub const EXPORT: &str = "\
Examples:
  halfgnn train --dataset cora.npz --save cora.safetensors
  halfgnn export cora.safetensors --to pyg gcn.safetensors
  python3 -c 'from safetensors.torch import load_file; from torch_geometric.nn import GCN
  m = GCN(1433, 64, 2, 7); m.load_state_dict(load_file(\"gcn.safetensors\"))'
  halfgnn export bits.safetensors --to bits packed.safetensors    of train --binary: a bit a weight, for predict

GCN, GraphSAGE, GIN and GAT have counterparts there. PyG also has those of GATv2 and of all other models but hetero and hgt.
Which name becomes which is in docs/data.md.";

/// Of `import`.
pub const IMPORT: &str = "\
Examples:
  python3 -c 'from safetensors.torch import save_file; save_file(model.state_dict(), \"model.safetensors\")'
  halfgnn import model.safetensors --from pyg own.safetensors
  halfgnn predict --model own.safetensors --dataset data.pt --out classes.csv
  halfgnn import unimp.safetensors --from pyg --model transformer --heads 4 --beta own.safetensors

The names and shapes of the tensors determine the model: GCN, GraphSAGE, GIN, GAT or, from PyG, GATv2. Other layers are named by --model,
with their options.";

/// Of `bench`, which is a family.
#[cfg(feature = "bench")]
pub const BENCH: &str = "\
Examples:
  halfgnn bench spmm --graph kron:18
  halfgnn bench sddmm --graph kron:18 --json sddmm.jsonl
  halfgnn bench spmm --help";

/// Of `report`.
pub const REPORT: &str = "\
Examples:
  halfgnn report --run
  halfgnn bench spmm --graph kron:18 --json bench.jsonl && halfgnn report bench.jsonl --output bench.html
  halfgnn report half.jsonl float.jsonl --title 'Cora, ten seeds' --svg figures
  halfgnn train --dataset cora.npz --json - | halfgnn report - --output cora.html

The page holds its figures itself and loads nothing. With each figure stands the command and the machine that gave it.";

/// Of `device`.
pub const DEVICE: &str = "\
Examples:
  halfgnn device
  CUDA_VISIBLE_DEVICES=1 halfgnn device
  halfgnn device --json - | jq 'select(.event == \"device\" and .auto).device'

Each device is opened as the other commands open it, and its kernels are loaded. A device that cannot be used is no
failure of this command: exit status 0.";

/// Of `completions`.
pub const COMPLETIONS: &str = "\
Examples:
  halfgnn completions bash > ~/.local/share/bash-completion/completions/halfgnn
  halfgnn completions zsh > ~/.zfunc/_halfgnn
  halfgnn completions fish > ~/.config/fish/completions/halfgnn.fish";

/// Of `man`.
pub const MAN: &str = "\
Examples:
  halfgnn man | man -l -
  halfgnn man train | man -l -
  halfgnn man --dir ~/.local/share/man/man1";
