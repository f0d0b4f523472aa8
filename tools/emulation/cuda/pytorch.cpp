// What PyTorch asks itself. cuDNN is not emulated: it has hundreds of entry points, whose graphs it compiles for the
// device. PyTorch has kernels of its own for all that it uses cuDNN for (convolutions, normalisation, attention,
// recurrent cells) where its user has switched that off (torch.backends.cudnn.enabled, enable_cudnn_sdp). Where this
// library is preloaded (opus-emulate), both say so, whatever the program sets.
extern "C" {

// at::Context::userEnabledCuDNN() const, at::Context::userEnabledCuDNNSDP() const
__attribute__((visibility("default"))) bool _ZNK2at7Context16userEnabledCuDNNEv(const void*) { return false; }
__attribute__((visibility("default"))) bool _ZNK2at7Context19userEnabledCuDNNSDPEv(const void*) { return false; }

}  // extern "C"
