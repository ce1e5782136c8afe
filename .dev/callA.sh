set -x
W=/tmp/w; mkdir -p $W; cp .dev/*.xz $W; cd $W; xz -d *.xz; cp $OLDPWD/.dev/halfgnn.manifest.json .; chmod +x halfgnn cuda-tests record_hardware
export HALFGNN_PTX_DIR=$W
nvidia-smi -L
mkdir -p rec; (time timeout 200 ./record_hardware rec --operators) > rec.log 2>&1; tail -3 rec.log; (cd rec && tar czf $OUT/rec.tgz .)
(time timeout 130 ./halfgnn bench spmv --graph amazon-like --graph road-like --graph kron21 --graph products-like --graph reddit-like --against cusparse,gather --json $OUT/spmv.jsonl) 2>&1 | tail -60
(time timeout 120 ./halfgnn bench ablations --paper gnnone --graph kron21 --graph products-like --graph reddit-like --features 6,16,32 --json $OUT/gnnone.jsonl) > gnnone.txt 2>&1; tail -4 gnnone.txt
(time timeout 120 ./halfgnn bench sampled --graph products-like --against cusparse --json $OUT/sampled.jsonl) 2>&1 | tail -20
(time timeout 60 ./halfgnn bench sampling --graph products-like --batches 60 --json $OUT/neigh.jsonl) 2>&1 | tail -12
(time timeout 60 ./halfgnn bench sampling --graph reddit-like --sampler saint-rw:2000,4 --batches 60 --json $OUT/saint.jsonl) 2>&1 | tail -12
tar czf $OUT/txt.tgz gnnone.txt rec.log
