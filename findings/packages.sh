# shellcheck shell=bash disable=SC2034
# findings/packages.sh: lists of packages that scripts share: a library, and all that it needs to be imported on CPUs.

# Without NVIDIA's libraries (without_cuda.sh).
torch_2_15_0=(torch==2.15.0 filelock==4.3.1 fsspec==2026.9.0 jinja2==3.1.6 markupsafe==3.0.4 mpmath==1.3.0
  networkx==3.6.1 numpy==2.4.6 sympy==1.14.0 typing_extensions==4.16.0)
# Beside torch.
accelerate_1_15_0=(accelerate==1.15.0 huggingface_hub==2.4.0 hf_xet==1.8.0 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 click==8.5.1 packaging==26.4 psutil==7.2.2
  pyyaml==6.0.4 safetensors==0.8.0 tqdm==4.70.1 requests==2.34.2 urllib3==2.8.0 charset_normalizer==3.5.3)
jax_0_10_2=(jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 ml_dtypes==0.6.0 opt_einsum==3.4.0 scipy==1.17.1)
mlx_0_32_4=(mlx==0.32.4 mlx-cpu==0.32.4)
mpich_5_0_2=(mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6)
xgboost_cpu_3_2_0=(xgboost-cpu==3.2.0 numpy==2.4.6 scipy==1.17.1)
tensorflow_2_21_0=(tensorflow-cpu==2.21.0 keras==3.15.1 absl-py==2.5.1 astunparse==1.6.3 certifi==2026.10.19.post1
  charset-normalizer==3.5.3 flatbuffers==25.12.19 gast==0.7.0 google-pasta==0.2.0 grpcio==1.85.3 h5py==3.14.0 idna==3.20
  libclang==18.1.1 markdown-it-py==4.3.0 mdurl==0.1.2 ml-dtypes==0.6.0 namex==0.1.0 numpy==2.4.6 opt-einsum==3.4.0
  optree==0.20.0 packaging==26.4 protobuf==7.36.2 pygments==2.21.0 requests==2.34.2 rich==15.0.0 six==1.17.0
  termcolor==3.3.0 typing-extensions==4.16.0 urllib3==2.8.0 wheel==0.48.0 wrapt==2.5.2 setuptools==81.0.0)
