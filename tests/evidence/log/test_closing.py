"""Good ends: what programs, launchers and schedulers end with; and what only looks like it."""

import math
from datetime import UTC, datetime

import pytest

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines
from allready.evidence.log.last_error import last_error
from allready.model import Report, Status
from tests.cases import cases

pytestmark = pytest.mark.thorough

STEPS = [f"step {n}/40 loss {9 / n:.3f}" for n in range(1, 41)]
HALF = STEPS[:20]
LOSSES = [f"loss {9 / n:.3f}" for n in range(1, 40)]
UNCOUNTED = [f"[train] it {n} | loss={9 / n:.4f} | {n * 7 % 13} ms" for n in range(1, 61)]
EPOCHS = [f"Epoch {n}: loss {9 / n:.3f}" for n in range(1, 61)]
RATES = [f"iter {n * 100}: loss 0.6 - lr: {(1 + math.cos(math.pi * n / 20.02)) / 2000:.2e}" for n in range(21)]
LOG_TIME = "2026-01-01 10:00:0"
GLOG = "I0807 15:36:50.563960 25899 solver.cpp:304]"


DONE = {
    "Portuguese": "2025-01-08 16:30:31,730 - INFO - Treinamento concluído com sucesso",
    "Spanish": "¡Entrenamiento completado!",
    "French": "Entraînement terminé.",
    "Italian": "Addestramento completato con successo",
    "German": "Training erfolgreich abgeschlossen",
    "Indonesian": "Pelatihan model selesai.",
    "Turkish": "Model eğitimi bitti, eğitim tamamlandı",
    "Polish": "Trening zakończony",
    "Russian": "Обучение успешно завершено.",
    "Vietnamese": "Huấn luyện đã hoàn tất!",
    "Korean": "모델 학습이 완료되었습니다",
    "Japanese": "学習が完了しました",
}


def _report(*files: list[str]) -> Report:
    readings = [read_lines(lines, f"job{at}.out") for at, lines in enumerate(files)]
    return judge_readings(readings, Question(), started=datetime.now(UTC))[0]


TORCH_W = "n1: [rank5]:[W410 20:32:38.047326535 ProcessGroupNCCL.cpp:1771] [PG ID 0 PG GUID 0(default_pg) Rank 5] "
AT_THE_DOOR = [
    TORCH_W + 'Failed to check the "should dump" flag on TCPStore, with error: Broken pipe',
    "n1: Exception raised from sendBytes at /pytorch/csrc/Utils.hpp:653 (most recent call first):",
    "n1: frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f in libc10.so)",
]
RUN_FOLDER = "Run directory: /home/u/logs/2025-12-06_21-21-02"


def _comms(what: str, ranks: int = 2) -> list[str]:
    return [
        f"n1:{40 + r}:{40 + r} [{r}] NCCL INFO comm 0x5{r} rank {r} nranks 2 cudaDev {r} busId {r}000 - {what} COMPLETE"
        for r in range(ranks)
    ]


STEPS_ELSEWHERE = {
    "Russian": ("Эпоха {}/{}: потеря 0.3", "Сохранено"),
    "German": ("Epoche {}/{} Verlust 0.3", "Ergebnis gespeichert"),
    "French": ("Époque {}/{} : perte 0.3", "Résultat enregistré"),
    "Italian": ("Epoca {}/{}: perdita 0.3", "Risultato salvato"),
    "Portuguese": ("Época {}/{}: perda 0.3", "concluído"),
    "Japanese": ("エポック {}/{}: 損失 0.3", "結果を保存しました"),
    "Korean": ("에포크 {}/{}: 손실 0.3", "결과 저장됨"),
    "Chinese": ("第 {}/{} 轮 损失 0.3", "结果已保存"),
}
PARTS_ELSEWHERE = [
    "Vorverarbeitung abgeschlossen", "Chargement terminé", "Prétraitement terminé.", "Caricamento completato",
    "Pré-processamento concluído", "Carregamento concluído", "Загрузка завершена", "Инициализация завершена",
    "Wczytywanie zakończono", "Yükleme tamamlandı", "Khởi tạo hoàn tất", "Đọc mô hình hoàn tất",
    "Načítání modelu dokončeno", "초기화 완료", "로딩 완료", "読み込みが完了しました", "初期化完了",
    "集群连接已完成", "准备工作已完成",
    "Эпоха 8 завершена", "Schritt 8 beendet", "Época 8 concluída", "Epoka 8 zakończono", "Dönem 8 tamamlandı",
    "Vòng 8 hoàn thành", "Epok 8 selesai", "에포크 8 완료", "エポック 8 完了", "第 8 轮已完成",
]  # fmt: skip

GOOD = {
    **{
        f"all that was counted in {language}": [step.format(n, 50) for n in range(1, 51)] + [words]
        for language, (step, words) in STEPS_ELSEWHERE.items()
    },
    "any work that is done in Russian": ["Чтение файлов", "Обработка a.txt", "Обработка завершена"],
    "the last of several parts": [
        line for n in (1, 2, 3) for line in (f"Seed {n}/3", *(f"Epoch {e}/20 loss {9 / e:.3f}" for e in range(1, 21)))
    ],
    "the last of the folds that were announced": [
        "Starting 3-fold cross-validation",
        *(
            line
            for n in (1, 2, 3)
            for line in (f"--- Fold {n} ---", *(f"Epoch {e}/20 loss {9 / e:.3f}" for e in range(1, 21)))
        ),
    ],
    "a training that stopped early, below what was announced": [
        "Training for 100 epochs",
        *(f"Epoch {e} loss {9 / e:.3f}" for e in range(1, 38)),
        "Early stopping at epoch 37",
        "Final accuracy: 91",
    ],
    "a training that says when it began": [
        *(f"Epoch {e}/20 loss {9 / e:.3f}" for e in range(1, 21)),
        "训练完成，开始时间 10:00:01，结束时间 10:37:19",
    ],
    "early stopping in the words of Lightning": [
        *(f"Epoch {n}: 40/40 [00:01<00:00, v_num=0, loss=0.{n}]" for n in range(1, 8)),
        "Monitored metric loss did not improve in the last 5 records. Best score: 0.026. Signaling Trainer to stop.",
    ],
    "the result of the last of all parts": [
        *(line for k in (1, 2) for line in (f"Fold {k}/2", *LOSSES)),
        "Final accuracy: 0.8312",
    ],
    "results of parts that are counted from 0": [
        *(line for k in (0, 1) for line in (f"seed {k}/2", *LOSSES)),
        "Done. Results saved to out/a.csv",
    ],
    "ranks that all say so": [
        *(f"[rank{r}]: it {n} loss={9 / n:.4f}" for n in range(1, 60) for r in range(4)),
        *(f"[rank{r}]: Final loss: 0.0166" for r in range(4)),
    ],
    "communicators that old torch aborts when the process ends": [
        *_comms("Init"),
        *HALF,
        "Training finished.",
        *_comms("Abort"),
    ],
    "ranks of a measure": ["testing", *(f"INFO   Test HITS@{k} : 0.{k}97" for k in (1, 3, 10))],
    "results that it saved": ["P R F", "name 63.8 85.1 73.0", "[+] Saved results to logs\\test_results.json"],
    "VASP": ["DAV:  22  -0.138E+03", "   1 F= -.138E+03 E0= -.138E+03", " writing wavefunctions", "sjob"],
    "results that were written": ["reading frames", "result file saved to out/result/val.json"],
    "all phases, behind the epochs of one": [
        *(f"epoch {n} of the model" for n in range(4)),
        "Saved prediction to a.shp",
        "All enabled phases completed.",
    ],
    "a measure that is the last one": ["sample one: fair", "sample two: good", "Final WER: 0.37806"],
    "the main loop of a script": ["Starting main loop", "a submitted", "Finishing main loop Wed 29 Aug 02:02:40"],
    "what torch warns of when the others have gone": [*STEPS, "Training finished.", *AT_THE_DOOR],
    "the table of an evaluation that was saved": ["evaluating", "Success rate: 22/100", "Table saved to out/table.csv"],
    "a word with a time": ["next=finished", "[2026-06-14 02:51:05] [finished]"],
    "a status of a benchmark": [*HALF, "__results.time__=20.08", '__exp.status__="success"'],
    "work that is done, by a script without steps": [
        "reading 12,000 papers",
        "Non-negative factors of a",
        "cleaning done",
    ],
    "work that is done, above a rule": ["opening results.zip", "INFO - EXPORT SUCCESSFUL !", "INFO - ---------"],
    "tests": ["collected 12 items", "tests/test_a.py ............", "===== 12 passed in 3.21s ====="],
    "tests, and what a shell adds": ["===== 12 passed, 1 warning in 3.21s =====", "real 0m3.9s"],
    "steps that reach their end": STEPS,
    "epochs by another name": [
        "{'epoch_num': 3}",
        *(f" Epoch:{e},Loss:0.{9 - e}{n}" for e in range(3) for n in range(9)),
    ],
    "an epoch of the best behind them all": [
        *(f"Epoch {e}/30 loss 0.{e}" for e in range(1, 31)),
        "best accuracy: 0.717 epoch: 17 name: runs/2",
    ],
    "an evaluation whose settings name epochs": [
        "Namespace(batch_size=100, epochs=500, sigma=None, epoch=199)",
        *(f"sigma = 0.{n}" for n in range(10, 20)),
        "[2026-01-02 15:18:28,679][e.py][line:86][INFO] finish evaluation",
    ],
    "results behind a logger's front": [
        f"{LOG_TIME}1,123 - INFO - testing on 300 cases",
        f"{LOG_TIME}2,123 - INFO - FINAL RESULTS:",
        f"{LOG_TIME}2,124 - INFO - Accuracy:  0.9391",
        f"{LOG_TIME}2,124 - INFO - Recall:    0.9897",
        f"{LOG_TIME}2,125 - INFO - ============",
    ],
    "done behind a logger's front": [
        *(f"{LOG_TIME}0,{n:03d} INFO [s2] step={n * 8} loss=0.{n:03d}" for n in range(100, 160)),
        f"{LOG_TIME}1,266 INFO === plots ===",
        f"{LOG_TIME}1,267 INFO Done. Results saved to ./results",
    ],
    "all steps of a workflow": ["[Fri Mar 27] Finished jobid: 0", "3 of 3 steps (100%) done", "Complete log(s): a.log"],
    "done, in Indonesian": ["membuka berkas", "Ekspor selesai."],
    "a rule of a named logger, first and last": [
        f"{LOG_TIME}0,844 - my_logger - INFO - ==========",
        f"{LOG_TIME}0,845 - my_logger - INFO - opening all of it",
        f"{LOG_TIME}2,183 - my_logger - INFO - Analysis completed. Results saved to out/report",
        f"{LOG_TIME}2,184 - my_logger - INFO - ==========",
    ],
    "what a library does to avoid an error": [
        "INFO - opening 12 files",
        "INFO - We will use 90% of the memory, and 10% for the buffer to avoid OOM.",
        "INFO - 评估完成，GPU 内存已清理",
    ],
    "the time of the full test": ["[1/3] Js: 0.5", "[2/3] Js: 0.6", "[3/3] Js: 0.6", "full testing time = 0.19 Hours"],
    "a bar of an analysis of errors": [
        *(f"error analysis: {n}%|###| {n}/100 [00:09<00:00,  6.02it/s]" for n in range(10, 101, 10)),
        "Saved to reports/all",
    ],
    "words after early stopping": [*HALF, "no better for 5 rounds", "Training finished."],
    "end of training": [*HALF, "[after training is done] 12:00"],
    "metrics of a trainer": [*STEPS, "***** train metrics *****", "  epoch      = 3.0", "  train_runtime = 0:01:07"],
    "a record of success": [*HALF, ':::LOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}'],
    "records of what was behind it": [
        *HALF,
        '{"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {"status": "success"}}',
        '{"event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": 7.5, "metadata": {"step": 20}}',
        '{"event_type": "INTERVAL_END", "key": "epoch_stop", "value": null, "metadata": {"epoch": 2}}',
    ],
    "a rank's last word behind it": [*HALF, "Training finished.", "INFO:root:Rank 0 done. score=23.02 @ epoch=5"],
    "logged as a library would": [
        *(f"loss {9 / n:.3f}" for n in range(1, 41)),
        "I0826 20:58:54.931182 140055 trainer.py:447] Run stats:",
        "{'loss': 6.03}",
    ],
    "warnings of libraries behind it": [
        *HALF,
        "Training finished.",
        "2026-01-01 20:58:58.724528: W tensorflow/core/context.cc:566] Unable to destroy server_ object",
        "/opt/lib/gluon/block.py:1591: UserWarning: Cannot decide type for the following arguments.",
    ],
    "epochs that end, of those announced": [
        line
        for e in range(1, 5)
        for line in (f"=== Epoch {e}/4 ===", *(f"reward {n}" for n in range(9)), f"==end-of-epoch {e}==")
    ],
    "the last of many epochs": [
        *("=== Epoch 1/4 ===", "==end-of-epoch 1=="),
        *(f"reward 0.{n}" for n in range(500)),
        "==end-of-epoch 4==",
    ],
    "epochs from 0 and from 1 in one log": [
        "num_train_epochs=2",
        *(
            line
            for e in (0, 1)
            for line in (f"Beginning of Epoch {e + 1}/2", *(f"epoch: {e}|step: {n}|loss: 2.0" for n in range(9)))
        ),
    ],
    "epochs without a total": [
        "Namespace(epochs=3, lr=0.1)",
        *(f"Epoch: [{e}][{b:2d}/20] loss 1.0" for e in range(3) for b in range(0, 20, 5)),
        " * Acc@1 61.2",
    ],
    "epochs with a total": [f"Epoch {e}/3, loss 0.4, took 3.1 s" for e in (1, 2, 3)],
    "a bar of the last epoch": [
        "max_epochs: 2",
        "Epoch 0: 100%|#####| 50/50 [00:10<00:00, 5.0it/s]",
        "Epoch 1: 100%|#####| 50/50 [00:10<00:00, 5.0it/s]",
    ],
    "steps up to an announced number": [
        "Overriding: max_iters = 200",
        *(f"iter {n}: loss 3.1, time 120ms" for n in range(0, 201, 10)),
    ],
    "steps from 0, of a configuration": [
        "Config param steps: 20",
        *(f"completed step: {n}, loss: 7" for n in range(20)),
    ],
    "an evaluation by tens, and its result": [
        "Namespace(epochs=3)",
        *(f"Epoch: [{e}][{b:2d}/20] loss 1.0" for e in range(3) for b in range(0, 20, 5)),
        "Test: [ 0/25] acc 61.0",
        "Test: [20/25] acc 61.0",
        " * Acc@1 61.2",
        "Training time 1:02:03",
    ],
    "tests behind the end": [
        *HALF,
        "`Trainer.fit` stopped: `max_epochs=10` reached.",
        "Restoring states from the checkpoint path at /x/epoch=9-step=1000.ckpt",
        "Testing DataLoader 0: 100%|##########| 10/10 [00:01<00:00,  9.87it/s]",
    ],
    "a program that says where it ends": [
        *(f"iteration {n}/ 50000 | loss 1.0" for n in range(10, 110, 10)),
        "exiting program at iteration 100",
    ],
    "a checkpoint saved behind the end": [*HALF, "Training completed.", "Async checkpoint save for step 40 finalized"],
    "a launcher that waits for the others, done": [
        *HALF,
        "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        "Done waiting for other agents. Elapsed: 0.0003 seconds",
    ],
    "all processes of a launcher": [
        *(f"[INFO] process {pid} spawned with command: ['python']" for pid in (71, 72, 73)),
        *HALF,
        *(f"[INFO] Process {pid} exits successfully." for pid in (72, 71, 73)),
    ],
    "as many processes as a node has GPUs": [*(f"[INFO] Process {pid} exits successfully." for pid in range(50, 66))],
    "a server": [
        "Uvicorn running (Press CTRL+C to quit)",
        "Application shutdown complete.",
        "Finished server process [3]",
    ],
    "closing lines by the hundred": [
        *HALF,
        "ENDING TIMING RUN AT 2021-05-19 09:49:37 AM",
        *(f"RESULT,unet,,{n},2021-05-19 09:41:10 AM" for n in range(300)),
    ],
    "a sum of all": [
        *(f"{n}0\timages/sec: 2627.5 +/- 18.5" for n in range(1, 9)),
        "-----",
        "total images/sec: 2637.11",
    ],
    "a sum behind a limit of steps": [
        *(f"Iteration:   {n}%|#| {n}/99 [00:01<00:35, 2.7it/s]" for n in range(1, 5)),
        "DLL -  e2e_train_time : 37.5 final_loss : 6.04",
    ],
    "a count that a summary repeats": [
        "--max-epoch 1",
        *(f"epoch 0 | step {n} | loss 2" for n in range(10, 90, 10)),
        "| done training in 521.8 seconds",
        "epoch 0 | step () | loss 4.7",
    ],
    "a step before the end of a count by tens": [
        *(f"Batch: {n}/7387, loss 0.5" for n in range(7000, 7387, 50)),
        "{'f1': 91.15, 'exact_match': 84.27}",
    ],
    "a state": [*HALF, "[State Transition] RUNNING -> FINISHED."],
    "a reached limit": [*HALF, "`Trainer.fit` stopped: `max_steps=20` reached."],
    "a launcher's word": [*HALF, "Job 88 exited with status 0"],
    "a scheduler's word": [*HALF, "State: COMPLETED (exit code 0)"],
    "no errors": [*STEPS, "Run completed with 0 errors"],
    "Chinese": [*HALF, "训练完成，共 20 步"],
    "Chinese, a script without steps": ["读取数据", "共 120 条", "结果已保存到 out/acc.csv"],
    "Russian": ["загрузка модели", "готово"],
    "Korean": ["모델 로드", "평가 완료"],
    "a tag": [*(f"reward {n}" for n in range(9)), "[done] all metrics: out/metrics.jsonl"],
    "all ranks by their numbers": [
        "world_size: 3",
        *(f"rank {r} loss 0.{n}" for n in range(4) for r in range(3)),
        *(f"All done for rank  {r}" for r in (2, 0, 1)),
        "/opt/lib/callbacks.py:58: UserWarning: Some callbacks may not have access to the averaged metrics",
    ],
    "all watchdogs of NCCL": [
        "[INFO] merged",
        *(f"[I ProcessGroupNCCL.cpp:844] [Rank {r}] NCCL watchdog thread terminated normally" for r in (1, 0)),
    ],
    "a summary of a benchmark": [
        "loading the model",
        "BENCHMARK SUMMARY  [workers 8]",
        "  Steps timed:     95",
        "  Mean iter time:  284.11 ms",
        "  P95 iter time:   291.52 ms",
        "  Throughput (mean):28.2 samples/sec",
        "=" * 40,
    ],
    "averages of an evaluation": ["analyzing a.mat", "===> Avg. PSNR: 16.8 dB", "===> Avg. SSIM: 0.139"],
    "a document of results": [
        "Loading weights: 100%|##########| 713/713 [00:10<00:00, 70.1it/s]",
        *("{", '  "runs": [', '    {"latency_s": 5.71},', '    {"latency_s": 5.74}', "  ],"),
        *('  "mean_latency_s": 5.732,', '  "steps": 20,', '  "images_per_s": 0.174', "}"),
    ],
    "a bar that took as long as the program": [
        "Loading data: 100%|##########| 10/10 [00:20<00:00,  2.0s/it]",
        *(f" {n}%|###   | {n}/100 [{n // 2:02d}:10<10:00, 30.0s/it]" for n in range(10, 100, 10)),
        "100%|##########| 100/100 [52:39<00:00, 31.6s/it]",
    ],
    "a bar around bars": [
        *(f"head: 100%|##########| 64/64 [01:3{n}<00:00,  1.4s/it]" for n in range(8)),
        "layer: 100%|##########| 80/80 [2:00:17<00:00, 90.2s/it]",
    ],
    "the last epoch and its last batch in one line": [
        f"epoch {e}/3, batch {b}/40, loss 0.1" for e in (1, 2, 3) for b in range(10, 41, 10)
    ],
    "a count that nothing calls steps": [f"[decoding {n}/36] beam=5: ins=1.2%" for n in range(1, 37)],
    "the first column of a table": [f"   {n}/29   11.8G   0.021   640   0.97" for n in range(30)],
    "a long table behind the last epoch": [
        *(f"Epoch {e}/3, loss 0.4, took 3.1 s" for e in (1, 2, 3)),
        *(f"{chr(97 + n % 26)}{chr(97 + n // 26)}={n}.4" for n in range(80)),
        "~~~~ MeanAP @ IoU=[0.50,0.95] ~~~~",
        "=25.1",
    ],
    "trouble long before the end": [
        "cannot find file: INPUTs (used to generate overlap data)",
        *(f"{chr(97 + n)}{chr(98 + n)} overlap of orbital" for n in range(25)),
        "Total  Time : 291 Seconds",
    ],
    "a scheduler's summary": ["Terminated at Wed Apr  9 09:24:11 2025", "Successfully completed.", "Run time : 5 sec."],
    "steps in brackets behind one epoch": [f"Epoch:[1/1]({n}/60), loss: 2.1" for n in range(10, 61, 10)],
    "steps in brackets behind the last epoch": [
        f"Epoch 1/2 [{n}/40] loss 0.3".replace("1/2", f"{e}/2") for e in (1, 2) for n in range(0, 41, 8)
    ],
    "a code behind a time-out that was set": ["communicating with 90.0 second timeout", "got exitcode: 0", "restored"],
    **{f"in {language}": [*UNCOUNTED, words] for language, words in DONE.items()},
    "a bar of all epochs, and predictions behind it": [
        "Num Epochs = 3",
        *(
            line
            for e in (1, 2, 3)
            for line in (
                *(f"Iteration: {n}%|#| {n}/100 [00:{n // 2:02d}<00:10, 2.00it/s]" for n in (1, 50, 100)),
                f"Epoch: {e * 33}%|###   | {e}/3 [0{e}:00<00:10, 60.0s/it]",
            )
        ),
        *(f"Predicting: {n * 50}%|##| {n}/2 [00:0{n}<00:00, 5.68it/s]" for n in (1, 2)),
        "INFO - __main__ -   out/predictions.json",
    ],
    "a table whose rows a second one repeats": [
        "Running loglikelihood requests: 100%|####| 110/110 [10:00<00:00, 5.68it/s]",
        "| Tasks |Version|Metric|Value |",
        "|-------|------:|------|-----:|",
        *(f"|mmlu {n}|      1|acc   |0.24{n:02d}|" for n in range(90)),
        *(f"| - {name}|      2|acc   |0.25{n:02d}|" for n, name in enumerate(("stem", "other", "social"))),
        "",
        "| Groups|Version|Metric|Value |",
        "|-------|------:|------|-----:|",
        *(f"| - {name}|      2|acc   |0.25{n:02d}|" for n, name in enumerate(("stem", "other", "social"))),
    ],
    "rates of a test, and which cases they were": [
        "robot FOV 2.0",
        "Testing success rate: 0.92, collision rate: 0.07, timeout rate: 0.01, nav time: 15.42",
        "Collision cases: 5 71 74",
        "Timeout cases: 49 299",
    ],
    "a run that stopped early, behind another one in the same file": [
        *(
            line
            for _ in (1, 2)
            for line in (
                "Loading the data of the study",
                "Model with 12 layers is built",
                *(f"[Epoch {e}/90] Train Loss: {9 / e:.3f}" for e in range(1, 60)),
                "Early stopping triggered.",
                "Loading best model and evaluating on test set...",
                "Test Loss: 0.4043",
            )
        ),
        "Saving confusion matrix as confusion_matrix.png...",
    ],
    "results that are saved behind a training that stopped early": [
        *(f"Epoch [{e}/1024] train_loss: {9 / e:.3f}" for e in range(1, 9)),
        "WARNING | Tools | Early stopping at epoch: 8",
        "Tools | load model success!",
        "{'mse': 0.9596460414071627, 'mae': 0.5668767716033328}",
        "Tools | metric result saved!",
    ],
    "ranks of a retrieval": [
        "Computing CMC and mAP",
        *(line for k, p in ((1, 97.3), (5, 99.9), (10, 100.0)) for line in (f"Rank-{k} : {p}%", "------------------")),
    ],
    "a last step, and what can go wrong": [*STEPS, "This is not supported for all models and can yield errors."],
}

COUNTED = [f"Epoch {e}/20 loss {9 / e:.3f} acc {60 + e}" for e in range(1, 21)]
PLAIN_EPOCHS = [f"Epoch {e} loss {9 / e:.3f}" for e in range(1, 38)]
TRAINING_STEPS = [f"step {n} loss {9 / n:.3f}" for n in range(10, 310, 10)]
FULL_BAR = "100%|##########| 5000/5000 [00:10<00:00, 500it/s]"
OPEN = {
    **{
        f"a count in {language} that is not at its end": [step.format(n, 100) for n in range(1, 50)] + [words]
        for language, (step, words) in STEPS_ELSEWHERE.items()
    },
    **{f"a part that is done: {words}": ["start", words] for words in PARTS_ELSEWHERE},
    **{
        f"the first of several parts: {part}, {end}": [part, *COUNTED, *end]
        for part in ("Fold 1 of 5", "Seed 1/3", "Running task 1 of 8: cola", "阶段 1/3: 监督微调", "Round 3/50")
        for end in ((), ("Done.",), ("Training complete!",), ("训练完成",))
    },
    "the third of five folds, announced in words": [
        "Starting 5-fold cross-validation",
        *(line for n in (1, 2, 3) for line in (f"--- Fold {n} ---", *COUNTED, "Training complete. Best AUC: 0.93")),
    ],
    "the processes of the first stage": [
        "===== Stage 1/3: SFT =====",
        *TRAINING_STEPS,
        *(f"[INFO] [launch.py:347:main] Process 441{n} exits successfully." for n in range(4)),
    ],
    **{
        f"what comes next, in Chinese: {line}": [*COUNTED, line]
        for line in ("开始评估模型", "正在评估...", "训练完成，开始测试...", "训练完成，开始评估模型")
    },
    "the first stage, in Chinese": [*PLAIN_EPOCHS, "第一阶段训练完成"],
    "attempts that all failed": [
        *(f"Attempt {n}/3 failed: Connection refused" for n in (1, 2, 3)),
        "All attempts completed.",
    ],
    "a bar in front of the work": ["Loading model", FULL_BAR, "Dataset ready.", "Model loaded successfully."],
    "bars in front of the work": [f"Tokenizing: {FULL_BAR}", f"Grouping texts in chunks of 1024: {FULL_BAR}", "Done."],
    "a result after 37 of 100 epochs": ["Training for 100 epochs", *PLAIN_EPOCHS, "Final accuracy: 91"],
    "a result after 37 of 100 epochs of the settings": ["num_epochs=100", *PLAIN_EPOCHS, "Final accuracy: 91"],
    "a result after 300 of 5000 steps": ["max_steps: 5000", *TRAINING_STEPS, "Final loss: 0.4"],
    "a step of several, in Chinese": ["步骤 [3/6] 训练跨模态匹配器", *LOSSES, "Training time: 438.23s"],
    "a preparation in another language": [*UNCOUNTED, "Training: Datei gelade erfolgreich"],
    "a part in another language": [*UNCOUNTED, "Treinamento iniciado com sucesso"],
    "work that a tracker sums up for one of several runs": [*LOSSES, "wandb:   total_training_flops 1894087802880"],
    "another training behind one that stopped early": [
        *(f"Epoch [{e}/1024] train_loss: {9 / e:.3f}" for e in range(1, 9)),
        "Early stopping at epoch: 8",
        *(f"Epoch [{e}/1024] train_loss: {9 / e:.3f}" for e in range(1, 5)),
    ],
    "one stage of an optimizer": [*LOSSES, "Total Optimization Iterations: 12238 iterations completed"],
    "what a library does before the first step": [
        "INFO:tensorflow:Done calling model_fn.",
        "Done running local_init_op.",
    ],
    "a loop within another one that is done": [*LOSSES, "The epoch_out: 1, epoch_in: 9 of training alpha finished"],
    "times of one run after the other": [f"runtime: {n}.341417 s" for n in range(1, 60)],
    "times of which the last one was cut": [
        *(line for n in range(1, 20) for line in (f"Running for {n}x{n}", f"runtime: {n}.341417 s")),
        "Running for 20x20",
        "runtime: 0.56",
    ],
    "a bar of one of several epochs that is called one": [
        "Num Epochs = 3",
        *(f"Epoch: {n}%|#| {n}/100 [00:{n // 2:02d}<00:10, 2.00it/s]" for n in (1, 50, 100)),
    ],
    "measures of a table that came before": [
        *(f"| - stem|      2|acc   |0.25{n:02d}|" for n in range(3)),
        *LOSSES,
        "| - stem|      2|acc   |0.2507|",
    ],
    "a job that is requeued into the same folder": [
        RUN_FOLDER,
        "settings were read",
        *LOSSES,
        "Training complete!",
        RUN_FOLDER,
    ],
    "the same behind all steps": ["job 1234567 on gpu-012", "settings", *STEPS, "job 1234567 on gpu-012"],
    "a worker in brackets that died": [*STEPS, "WARNING | [worker 3] died", "Training finished."],
    "a final batch size": [*UNCOUNTED, "Final batch size: 512"],
    "final settings": ["settings", "Final batch size: 512", "Final context length: 4096"],
    "a final vocabulary": [*(f"{n}000 lines, {n * 77} words" for n in range(1, 70)), "Final vocabulary size: 32000"],
    "all preparations": ["reading", "All preprocessing jobs completed."],
    "all warm-up runs": ["reading", "All warmup runs finished"],
    "all stages of a pipeline": ["weights loaded", "All pipeline stages are now done"],
    "all parts of the data": ["part 1", "part 2", "All parts completed"],
    "all phases of a pre-training": ["reading", "All pre-training phases completed"],
    "all evaluations of a step": [*UNCOUNTED, "arc 0.21", "piqa 0.55", "All evaluations completed."],
    "all benchmarks behind an epoch": [
        *(f"Epoch {e} it {n} loss {9 / n:.3f}" for e in range(3) for n in range(1, 30)),
        "All benchmarks completed",
    ],
    "the result of one fold": ["=== Fold 1 ===", *UNCOUNTED, "Final accuracy: 0.8312"],
    "the result of a fold, by name": ["5-fold cross validation", *UNCOUNTED, "Final accuracy for fold 1: 0.8312"],
    "the result of one rate of a sweep": ["Sweep over 3 rates", "lr=0.1", *UNCOUNTED, "Final test accuracy: 0.8312"],
    "the results of one run of a sweep": ["Run 1 of sweep: lr=0.1", *UNCOUNTED, "Saved results to out/lr_0.1.json"],
    "all results of one of twelve": ["Config 1/12: lr=0.1", *UNCOUNTED, "Saved all results"],
    "the words of one of twelve": ["Config 1/12: lr=0.1", *UNCOUNTED, "Training finished."],
    "the results of one subject": ["Subject 1", *UNCOUNTED, "Done. Results saved to out/a.csv"],
    "the result of a teacher": ["Stage: teacher", *UNCOUNTED, "Final teacher accuracy: 0.912"],
    "the result of a shard": ["Running inference on shard 0 of 8", "BLEU: 31.20"],
    "the results of a step, by their folder": [*UNCOUNTED, "Result files written to out/iter_60/"],
    "a sum up to now": [*UNCOUNTED, "Overall loss so far: 1.93"],
    "a sum behind an epoch": ["epoch 0", *UNCOUNTED, "Overall accuracy: 0.41"],
    "a summary behind an epoch": [*UNCOUNTED, "Summary: train loss 1.9034"],
    "the best trial": [*EPOCHS, "Trial 0 finished with value: 0.81", "Best is trial 0 with value: 0.81."],
    "the best threshold": [*EPOCHS, "Running evaluation on the test split", "Best threshold found at 0.41, F1 0.62"],
    "the best up to an epoch": [*EPOCHS, "Best val acc 0.590 (epoch 59)"],
    "a result behind a loop without a count": [*LOSSES, "{'f1': 91.15, 'exact_match': 84.27}"],
    "predictions behind one": [*LOSSES, "Predictions saved to out/a.json"],
    "a benchmark behind one": [*LOSSES, "Benchmark completed"],
    "the best behind one": [*LOSSES, "Best loss: 0.41"],
    "a final size, as a name": ["settings", "final_batch_size: 512"],
    "an evaluation before the training": ["50000 train, 10000 val", "Running initial evaluation", "accuracy: 0.1012"],
    "the measure of a baseline": ["Evaluating baseline", "'accuracy', 0.51"],
    "the speed of a data loader": ["Testing dataloader", "throughput: 1832.1"],
    "one rank of four that stops, of which the others say the loss": [
        *(f"[rank{r}]: it {n} loss={9 / n:.4f}" for n in range(1, 60) for r in range(4) if r != 2 or n < 30),
        *(f"[rank{r}]: Final loss: 0.0166" for r in (0, 1, 3)),
    ],
    "communicators that one rank left and another did not": [
        *_comms("Init"),
        *HALF,
        "Training finished.",
        *_comms("Abort", ranks=1),
    ],
    "a start behind the first run, of which one line is there": [
        "nohup: ignoring input",
        "settings were read",
        *LOSSES,
        "Training complete!",
        "nohup: ignoring input",
    ],
    "a line of the loop that was cut": [
        *(f"    epoch {n}, minibatch 9/9, error of best model {9 / n:.3f} %" for n in range(1, 30)),
        "    epoch 30, minibatch 9/9, error of best model 0.3",
    ],
    "figures that are being drawn": [f"Figure saved to out/figures/{name}.png" for name in ("a", "b", "c")],
    "a result of each sample": [f"Prediction: {w} (WER: 0.{n})" for n, w in enumerate("abcdefgh", 1)],
    "steps of a program that writes as libraries do, behind a preparation": [
        f"{GLOG} Solver scaffolding done.",
        *(f"{GLOG} Iteration {n * 500}, loss = {9 / n:.3f}" for n in range(1, 9)),
    ],
    "a measure of a program that trains": [
        *LOSSES,
        "Start inference on 500 batches",
        "Evaluation results:",
        "#### ('AP', 8.3942433) ####",
    ],
    "a setting of a program that evaluates": ["Start inference", "  TEST:", "    SCORE_MIN: 0.001"],
    "a part of an evaluation": ["Running per image evaluation...", "Evaluate annotation type *bbox*", "DONE (t=0.16s)"],
    "all data of a kind": ["reading", "All 12 shards completed loading"],
    "a final setting": ["reading", "Final learning rate: 0.001"],
    "a checkpoint that was saved, in a program that prints no steps": ["loading", "Checkpoint saved to out/last.pt"],
    "a preparation that is done": ["reading conf.yaml", "Environment installed and activated: done"],
    "work of a program that counts, done in the middle": [*HALF, "cleaning done"],
    "a preparation, in a script without steps": ["reading conf.yaml", "Data preprocessing finished"],
    "tests that passed before the run": ["===== 12 passed in 3.21s =====", *(f"{w} set up" for w in "abcdefgh")],
    "a variable named like a record": [*HALF, "run_stop success"],
    "steps short of an announced number": [
        "Overriding: max_iters = 200",
        *(f"iter {n}: loss 3.1, time 120ms" for n in range(0, 181, 10)),
    ],
    "steps up to the number of warm-up steps": ["num_warmup_steps: 40", *(f"step {n} loss 3" for n in range(1, 41))],
    "an evaluation without its result": [
        "Namespace(epochs=3)",
        *(f"Epoch: [{e}][{b:2d}/20] loss 1.0" for e in range(3) for b in range(0, 20, 5)),
        "Test: [ 0/25] acc 61.0",
        "Test: [10/25] acc 61.0",
    ],
    "a process of a launcher that stays": [
        *(f"[INFO] process {pid} spawned with command: ['python']" for pid in (71, 72, 73)),
        *HALF,
        *(f"[INFO] Process {pid} exits successfully." for pid in (72, 71)),
    ],
    "fewer processes than a node has GPUs": [*(f"[INFO] Process {pid} exits successfully." for pid in range(50, 65))],
    "a launcher that waits for the others": [*HALF, "Training finished. Waiting for rank 3"],
    "a result after each epoch": [line for e in range(2) for line in (f"epoch {e} loss 2", f"{{'accuracy': 0.8{e}}}")],
    "a result midway": [*HALF, "{'accuracy': 0.81}"],
    "a count by tens, one short": [f"iteration {n}/ 100 | loss 2.0" for n in range(10, 100, 10)],
    "the best midway": [*HALF, "best checkpoint: 20"],
    "the best so far": [line for e in range(3) for line in (f"iter {e} loss 2.0", f"Best metric: 7{e}.1 (epoch {e})")],
    "the last epoch begun, the one before out of sight": [
        "Namespace(epochs=3, lr=0.1)",
        *(f"epoch {e} step {n} loss 2.1" for e in range(2) for n in range(900)),
        *(f"epoch 2 step {n} loss 2.1" for n in range(450)),
    ],
    "the last epoch by two counts, begun": [
        "num_train_epochs=3",
        *(f"epoch: {e}|step: {n}|loss 2.1" for e in range(2) for n in range(900)),
        "Beginning of Epoch 3/3",
        *(f"epoch: 2|step: {n}|loss 2.1" for n in range(450)),
    ],
    "the last epoch at three fifths": [
        "num_epochs=3",
        *(f"epoch {e} step {n} loss 2.1" for e in (1, 2) for n in range(100)),
        *(f"epoch 3 step {n} loss 2.1" for n in range(60)),
    ],
    "members that finish steps behind the words": [
        "Training finished.",
        *(f"worker 0 finished step {n}/40" for n in range(20)),
    ],
    "a benchmark that begins again": [
        '{"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {"status": "success"}}',
        '{"event_type": "INTERVAL_START", "key": "epoch_start", "metadata": {"epoch": 3}}',
    ],
    "a record of the benchmark's abort": [
        *HALF,
        '{"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {"status": "aborted"}}',
        '{"event_type": "POINT_IN_TIME", "key": "tracked_stats", "metadata": {"step": 20}}',
    ],
    "records of steps behind other words": [
        *HALF,
        "Training finished.",
        *(f'{{"event_type": "POINT_IN_TIME", "key": "loss", "metadata": {{"step": {n}}}}}' for n in range(9)),
    ],
    "the end of an epoch that is not the last": [
        *("=== Epoch 1/4 ===", "==end-of-epoch 1=="),
        *(f"reward 0.{n}" for n in range(500)),
        "==end-of-epoch 3==",
    ],
    "a library's success": [*HALF, "I0826 20:58:54.931182 140055 rendezvous.cc:44] Rendezvous completed successfully"],
    "steps that stop midway": HALF,
    "an epoch of several": [f"Epoch {e}/9, loss 0.4" for e in range(1, 4)],
    "bars of epochs without a total": ["Epoch 0: 100%|#####| 50/50 [00:10<00:00, 5.0it/s]"],
    "one bar that began again": ["step 5/5", "step 1/5", "step 5/5"],
    "something begins after it": [*STEPS, "Training finished.", "Running evaluation"],
    "progress after it": ["Training finished.", *HALF],
    "an epoch, not the training": [*HALF, "training of epoch 3 finished"],
    "not": [*HALF, "training has not finished"],
    "a rank, not the job": [*HALF, "rank 3 finished"],
    "a checkpoint in German": ["reading the list", "Zwischenstand gespeichert unter lauf/150.pt"],
    "a checkpoint in Spanish": ["reading the list", "Punto de control guardado (150)"],
    "a checkpoint in French": ["reading the list", "Point de contrôle enregistré"],
    "a checkpoint in Russian": ["reading the list", "Контрольная точка сохранена"],
    "a checkpoint in Japanese": ["reading the list", "チェックポイントを保存しました"],
    "media that were uploaded": [*UNCOUNTED, "wandb: Synced 12 media files"],
    "a time that comes again": [line for e in range(3) for line in (f"iter {e} loss 2.0", f"total time: {e}.5 s")],
    "the words of the future": [*HALF, "waiting until training is finished"],
    "a script's echo after a failed rank": [*HALF, "srun: error: n1: task 1: Exited with exit code 1", "Job finished"],
    "cancelled after it": [
        *STEPS,
        "Training done",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T01:01:01 ***",
    ],
    "trials of a search, one after the other": [
        f"[I 2026-01-01 10:00:0{n}] Trial {n} finished with value: 0.7" for n in range(8)
    ],
    "an end that stands after each part": [
        line for e in "abcdefgh" for line in (f"case {e}", "ORIGEN V2 Execution Completed")
    ],
    "a bar that is one of several alike": [
        *(f"100%|##########| 50/50 [00:0{n}<00:00, 7.2it/s]" for n in (5, 6, 7)),
        "100%|##########| 50/50 [00:08<00:00, 6.9it/s]",
    ],
    "an evaluation that counts in brackets": [
        *(f"Train: epoch: [{e}] Total time: 4:25:09" for e in range(3)),
        *(f"Evaluation  [ {n}/251]  eta: 0:13:49    time: 3.36" for n in (0, 10, 20)),
    ],
    "results of one of several rounds": [
        "precision: 0.71, recall: 0.72, fscore: 0.71",
        "precision: 0.73, recall: 0.73, fscore: 0.73",
    ],
    "results of a training that goes on": [*HALF, "Test summary", "accuracy: 0.81", "step 21/40 loss 0.4"],
    "a configuration": ["model: a", "lr: 0.001", "dropout: 0.1", "weight_decay: 0.01", "timeout: 30.0"],
    "a server's statistics": ["starting", "Avg prompt throughput: 266.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs"],
    "a request of time": ["Resources: nodes=1,walltime=06:00:00", *(f"matmul,cpu,{n} 4,15.8" for n in range(9))],
    "Chinese, a model that was saved": ["加载配置", "模型已保存到 out/last.pt"],
    "Russian, data": ["начало", "загрузка данных завершена"],
    "one fold of several, stopped early": ["fold 2 of the data", "Early stopping at epoch 14", "fold 2, mse 0.99"],
    "a setting that succeeded": ["robot ready", "successfully set instruction: take the hammer"],
    "one rank of three": ["world_size: 3", "All done for rank 0", "All done for rank 2"],
    "a new best": [f"Metric val_loss improved. New best score: 0.0{n}" for n in range(9)],
    "another program behind a full count": [
        *(f"step {n}/9 loss 1.0" for n in range(10)),
        *(f"{chr(97 + n % 26)}{chr(97 + n // 26)} graph node" for n in range(70)),
    ],
    "steps in brackets short of their end": [f"Epoch:[1/1]({n}/60), loss: 2.1" for n in range(10, 51, 10)],
    "the last epoch's first step, with a loss": [
        *(f"Epoch {e}/3, step {n}, loss: 0.4{n}" for e in (1, 2) for n in range(9)),
        "Epoch 3/3, step 0, loss: 0.40",
    ],
    "a rate at the end of a cycle": RATES,
    "a rate at nothing, in front of an evaluation": [*RATES, "evaluating on 5000 images"],
    "a rate at nothing, and no finite loss": [line.replace("0.6", "nan") for line in RATES],
    "a rate that is printed as nothing": [f"iter {n}: loss 0.6 lr: {0.001 * (1 - n / 100):.4f}" for n in range(97)],
    "a rate of the last epoch, in the middle of it": [
        line for e in range(12) for line in (f"epoch {e} lr: {0.1 * (1 - e / 11):.5f}", *HALF[:9])
    ],
    "how long the training took, in each epoch": [*HALF, "Epoch training took 12.3s"],
    "leaving because of a loss": [*LOSSES, "loss nan", f"{LOG_TIME}0 INFO Exiting"],
    "leaving because of a file": ["config file missing: a.yaml", f"{LOG_TIME}0 INFO Quitting"],
    "a part that is finished": ["loading", f"{LOG_TIME}0,123 - INFO - finish"],
    "an image of many": ["generating image 3 of 50", "Saved image to out/3.png"],
    "images of many": ["Saved 3/10 images to out/3.png"],
    "where all will be saved": ["args parsed", "we save everything in out/run1"],
    "a test after five epochs": [*(f"epoch: {e} loss 0.{e}" for e in range(5)), "test Accuracy: 0.94"],
    "a test after ten epochs": [*(f"epoch {e} loss 0.{e}" for e in range(10)), "test loss: 0.44 test acc: 0.9"],
    "a trainer's evaluation after two epochs of three": [
        *LOSSES,
        "{'eval_loss': 1.32, 'eval_runtime': 240.4, 'eval_samples_per_second': 8.8, 'epoch': 2.0}",
    ],
    "the rate in an epoch's first line": [
        line for e in range(1, 6) for line in (f"Epoch {e}/5 lr: 0.0{e}", f"  train loss 0.{e}", f"  val loss 0.{e}")
    ][:-2],
    "Caffe's test of the net": [
        *(f"{GLOG} Iteration {n}, loss = 0.1{n}" for n in range(9)),
        f"{GLOG}     Test net output #0: accuracy = 0.895292",
    ],
    "a counter of patience": [*HALF, "stopping early: patience 3/10"],
    "a counter of patience, the other way round": [*HALF, "early stopping: patience 3/10"],
    **{
        f"no end: {line}": [*LOSSES, line]
        for line in (
            *(f"{what} took 3.2 s" for what in ("job setup", "script startup", "run eval", "everything loaded")),
            "training step took 0.53 s",
            "program compilation took 12.1 s",
            "training data took 12.4 s to load",
            "Saved optimizer to out/optim.bin",
            "Saved: plots/epoch1.png",
            "wrote 1000 docs to data/shard_4.npy",
            "final_lr after 3",
            "final_lr: 0.0001",
            "final_div_factor value: 0.001",
            "final_layer dim 5",
            "Training failed to improve in the last 5 epochs",
            "benchmark failed on cpu backend",
        )
    },
    "the last of five steps, which begins": ["Step 3/5: a", "Step 4/5: b", "Step 5/5: building the tree...", "a row"],
    "a part that is done, and then a table that grows": [
        "Merge finished",
        *(f"Prog= {n}.9 left= {90 - n} Time= {n}" for n in range(9)),
    ],
    "a part that is done, and then work that begins": ["Export finished", "Output: a.csv", "Loading: the next one"],
    "all steps but one of a workflow": ["Finished jobid: 1", "2 of 3 steps (67%) done"],
    "an epoch of the best within them": [
        *(f"Epoch {e}/30 loss 0.{e}" for e in range(1, 20)),
        "best accuracy: 0.717 epoch: 17 name: runs/2",
    ],
    "results of one of several epochs behind a logger's front": [
        f"{LOG_TIME}0,{e}{n:02d} - INFO - {text}"
        for e in range(3)
        for n, text in enumerate(("epoch begins", "Accuracy: 0.9391", "Recall: 0.9897"))
    ],
    "a number of failed tests": ["ran 3 tests", "tests failed: 0"],
    "a number of failed trials": ["tuning", "trials failed = 0"],
    "a number of failed checks": ["begins", "Benchmark failed checks: none"],
    "an experiment of several that failed": ["Experiment 1 ok", "Experiment 2 failed!", "Experiment 3 starts"],
    "an evaluation that failed, and the program went on": [
        *HALF[:9],
        f"{LOG_TIME}0,123 ERROR evaluation failed",
        "Traceback (most recent call last):",
        '  File "/a/x.py", line 2, in f',
        "ValueError: x",
        f"{LOG_TIME}1,123 INFO keeping the previous best",
        f"{LOG_TIME}2,123 INFO loading epoch data",
    ],
    "leaving after an error": ["loading", "ERROR - cannot read the data", "[17:31:35 - loop - INFO] Exiting..."],
    "the best of one of several folds": [
        line
        for n in range(3)
        for line in (
            "========= fold training =========",
            f"fold {n} begins with 9 files",
            *HALF[:3],
            "Save Best Loss: 0.07 Model",
        )
    ],
    "killed": [*STEPS[:39], "Killed"],
    "a raised error": [
        *HALF,
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in <module>',
        "ValueError: 3",
        "Training finished",
    ],
}


@cases("name", GOOD)
def test_a_good_end_is_told(name: str) -> None:
    report = _report(GOOD[name])
    assert report.status is Status.HEALTHY, report.not_checked
    assert report.summary is not None
    assert report.summary.closing is not None


@cases("name", OPEN)
def test_what_is_no_good_end_is_never_called_good(name: str) -> None:
    assert _report(OPEN[name]).status is not Status.HEALTHY


def test_a_thread_s_exception_is_the_error_where_no_step_was_counted() -> None:
    thread = [
        "Exception in thread Learner:",
        "Traceback (most recent call last):",
        '  File "/w/learn.py", line 3, in step',
        "KeyError: 0",
        "Stopping training components...",
    ]
    verdict = _report(["RL training", *thread]).verdict
    assert verdict is not None
    assert (verdict.code, "KeyError: 0" in verdict.sentence) == ("DTH008", True)
    assert _report([*HALF, *thread]).verdict is None


def test_the_last_line_of_a_long_traceback_that_was_handled_is_no_error_of_the_program() -> None:
    frames = [line for n in range(40) for line in (f'  File "/w/app{n}.py", line 3, in call', "    await app()")]
    request = [
        "ERROR:    Exception in ASGI application",
        "Traceback (most recent call last):",
        *frames,
        "RuntimeError: nan",
    ]
    ends = ["INFO:     Shutting down", "INFO:     Finished server process [22]"]
    assert _report(["INFO:     Started server process [22]", *request, *ends]).verdict is None


def test_an_iterator_that_ended_is_an_error_as_well() -> None:
    line = "StopIteration: Caught StopIteration in replica 0 on device 0."
    assert last_error(["start", line], lambda _: False, has_begun=False) == (1, line)


def test_a_closed_pipe_is_no_cause_beside_another_exception() -> None:
    pipe = [
        "Traceback (most recent call last):",
        '  File "/w/writer.py", line 202, in run',
        '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 136, in _check_closed',
        "OSError: handle is closed",
    ]
    cause = ["Traceback (most recent call last):", '  File "/w/train.py", line 9, in step', "RuntimeError: wrong shape"]
    both, alone = _report([*pipe, *cause]).verdict, _report(pipe).verdict
    assert both is not None
    assert alone is not None
    assert "wrong shape" in both.sentence
    assert "handle is closed" in alone.sentence


def test_an_exception_that_was_handled_hides_no_later_death_by_a_pipe() -> None:
    handled = ["Traceback (most recent call last):", '  File "/a/x.py", line 2, in f', "KeyError: 'x'"]
    pipe = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 136, in recv',
        "EOFError",
    ]
    verdict = _report([*handled, "skipping this file", *HALF[:19], *pipe]).verdict
    assert verdict is not None
    assert "EOFError" in verdict.sentence


def test_a_service_that_is_not_there_is_no_closed_pipe() -> None:
    refused = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.10/multiprocessing/managers.py", line 554, in connect',
        "ConnectionRefusedError: [Errno 111] Connection refused",
    ]
    other = ["Traceback (most recent call last):", '  File "/w/train.py", line 9, in step', "RuntimeError: wrong shape"]
    assert {d.text.partition(":")[0] for d in read_lines([*refused, *other], "job.out").deaths} == {
        "ConnectionRefusedError",
        "RuntimeError",
    }


@pytest.mark.parametrize("line", ["evaluation failed on 3 of 100 samples", "Training failed to improve"])
def test_what_failed_behind_all_steps_is_no_death(line: str) -> None:
    assert _report([*STEPS, line]).status is not Status.FAULT
    assert _report([*STEPS, "Training finished.", "test 3 failed"]).status is not Status.FAULT


def test_every_rank_with_a_log_has_to_end() -> None:
    def lines(rank: int, steps: list[str]) -> list[str]:
        return [f"[rank{rank}]: {line}" for line in steps]

    assert _report(lines(0, STEPS), lines(1, STEPS)).status is Status.HEALTHY
    assert _report(lines(0, STEPS), lines(1, HALF)).status is Status.UNKNOWN
    assert _report(lines(0, STEPS), lines(1, ["a word"])).status is Status.UNKNOWN


def test_progress_after_a_failed_helper_overrules_it() -> None:
    failed = ["srun: error: n1: task 0: Exited with exit code 2"]
    assert _report([*failed, *STEPS, "Training finished"]).status is Status.HEALTHY
    assert _report([*STEPS, *failed]).status is Status.FAULT


def test_the_end_that_is_missing_is_named() -> None:
    why = _report(HALF).not_checked[0]
    assert (why.values["done"], why.values["total"]) == ("20", "40")
