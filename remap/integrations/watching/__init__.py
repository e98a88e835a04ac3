"""Watching loads that others make: each module knows one library's way of loading without being strict.

    patches       which functions are replaced, when, and how they are put back
    watch         what is done with a load that was seen: audit, policy, report
    torch_state   nn.Module.load_state_dict(strict=False)
    deepspeed     PipelineModule.load_state_dir, DeepSpeedEngine.load_checkpoint
    transformers  PreTrainedModel.from_pretrained
    peft          set_peft_model_state_dict

No library is imported here that wasn't before; one that is imported later is watched from then on.
"""
