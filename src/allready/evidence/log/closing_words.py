"""The words with which programs, launchers and schedulers say that they are done, and those that deny it."""

import functools
import re

from allready.evidence.log import languages
from allready.evidence.log.trouble import is_of_some

_SUBJECT = (
    r"(?:pre-?training|fine-?tun(?:e|ing)|training|train(?:er)?|fit(?:ting)?|run|jobs?|experiments?|"
    r"trials?|programs?|scripts?|pipelines?|workflows?|workloads?|applications?|execution|simulation|processes|"
    r"main loop|solving|solver|optimi[sz](?:ation|ing)|learning|"
    r"all (?:ranks?|workers?|tasks?|nodes?|epochs|steps|iterations)|everything)"
)


@functools.cache
def certain() -> re.Pattern[str]:
    """Words of an end of everything, unless a part is named."""
    return re.compile(
        rf"\b{_SUBJECT}\b[\w\s:.,'\"`#/()-]{{0,40}}?\b(?:finished|done|completed?|succeeded|successful|ended)\b|"
        rf"\b{_SUBJECT}\]\W{{1,4}}(?:is |was )?(?:finished|done|completed?)\b|"
        r"\b(?:training|fine-?tuning|fitting|optimi[sz]ation) of [\w\s'\"/-]{1,100}? "
        r"(?:finished|done|completed?)\s*[.!]?\s*$|"
        r"\b(?:finish(?:ed|ing)|done|completed|end of|end|ending|exiting|concluded)\b"
        rf"[ \w]{{0,12}}?(?:with |the |all |of |from )*{_SUBJECT}\b|"
        r"\b(?:finished|completed|terminated|ended|ran|run|executed|exit(?:ed|s|ing)?)\s+(?:successfully|normally|cleanly|gracefully)\b|"
        r"\bsuccessfully\s+(?:finished|completed|terminated|ended|exited|trained)\b|"
        r"\b(?:exit(?:ed)?|return(?:ed)?)(?:[ _-]?(?:with|status|code|value)){1,3}\s{0,8}[:=]?\s{0,8}\(?0\b(?!\.\d)|"
        r"(?:\b|_)(?:job ?state|state|status|result)(?:\b|__)['\"]?\s*[:=]\s*['\"]?(?:success(?:ful)?|succeeded|"
        r"completed?|finished|passed)\b|"
        r"\breached (?:the )?(?:max(?:imum)?|final|last|target|end)\b|"
        r"(?:->|=>|→) ?['\"]?(?:finished|succeeded|completed|success)\b|"
        r"(?:训练|訓練)(?:任务)?(?:已)?(?:全部)?(?:完成|结束|結束)",
        re.IGNORECASE,
    )


@functools.cache
def elsewhere() -> re.Pattern[str]:
    """That the training or the run is done, in the languages in which people write their scripts."""
    return re.compile(
        r"\b(?:treinamento|treino|entrenamiento|entra[iî]nement|allenamento|addestramento|trainings?|pelatihan|eğitim|"
        r"trening|обучение|тренировка|execução|ejecución|exécution|esecuzione|выполнение)\b"
        r"(?:(?!\b(?:inici|configur|prepar|carreg|carg|charg|début|démarr|gelad|gestart|avvia|caric|нача|загру|запу)).){0,30}?"
        r"(?:\b(?:conclu[ií]d[oa]|finalizad[oa]|completad[oa]|completat[oa]|terminad[oa]|terminat[oa]|termin[ée]e?|"
        r"achevée?|abgeschlossen|beendet|selesai|tamamlandı|zakończon[oey]|ukończon[oey]|"
        r"(?:за|о)конч[её]н[оа]?|заверш[её]н[оа]?)(?!\w)|"
        r"\b(?:com sucesso|con éxito|avec succès|con successo|erfolgreich|успешно)(?!\w))|"
        r"\bhuấn luyện\b.{0,20}?\b(?:hoàn (?:thành|tất)|kết thúc|xong)\b|"
        r"\bhoàn (?:thành|tất)\b.{0,20}?\bhuấn luyện\b|"
        r"(?:학습|훈련)\s?(?:이|을|를)?\s?(?:모두\s?)?(?:완료|종료)|(?:学習|訓練|トレーニング)(?:が|を|は)?(?:完了|終了)",
        re.IGNORECASE,
    )


_ALL_FOLDS = (
    r"\b(?:\w{0,6}CV|cross[ -]?validation) (?:is |was |has )?(?:finished|done|completed?)\b(?!\W{0,3}(?:for|of)\b)|"
    r"\ball (?:\d{1,4} )?folds (?:are |were |have )?(?:finished|done|completed?)\b"
)


def means_all_folds(text: str) -> bool:
    """Whether it says that every part of a cross validation is over, whichever of them the log shows."""
    return re.search(_ALL_FOLDS, text, re.IGNORECASE) is not None and not denies(text)


@functools.cache
def whole() -> re.Pattern[str]:
    """Words of an end of everything that may name a step, a worker or a process."""
    return re.compile(
        r"\bmax(?:imum)?[_ ](?:number of )?(?:epochs?|steps?|iter(?:ation)?s?|time|tokens)\b[^|]{0,24}\breached|"
        r"\bexiting program (?:at|after)\b|\bfinish(?:ed|ing) training (?:at|after)\b|"
        r"\bworker group (?:successfully )?finished\b|\bfinished server process\b|"
        r"\bapplication shutdown complete\b|"
        r"\bfinished mdrun\b|^\s{0,8}writing wavefunctions\s*$|"
        r"\ball (?:(?:\d{1,4}|enabled|requested|planned|scheduled|selected|configured) "
        r"(?:phases|stages|parts|tasks|jobs)|"
        r"(?:\d{1,4} )?(?:folds|experiments|runs|trials|seeds|scenarios|analyses|explanations))"
        r"(?: (?:are|were|have|been|now|successfully)){0,3} (?:completed?|finished|done)\b[^\w(]{0,80}$|"
        r"^# Ended \(code 0\)|"
        r"\b(?P<steps>\d{1,9}) of (?P=steps) steps \(100%\) done\b|"
        r"^\W{0,8}(?:\x1b\[[\d;]{0,8}m)?\d{1,9} epochs (?:completed|done|finished) in \d[\d.:]{0,12}\s?"
        r"(?:s|sec|seconds|m|min|minutes|h|hours)\b|"
        rf"{_ALL_FOLDS}|HPCG result is VALID|\bEnd of Tests\b|Overall training speed",
        re.IGNORECASE,
    )


@functools.cache
def _sentence() -> re.Pattern[str]:
    return re.compile(r"(?<=[.!;])\s+(?=[A-Z\d])")


@functools.cache
def _record() -> re.Pattern[str]:
    """What a trainer prints once, behind its last step, whatever else the line counts."""
    return re.compile(r"\btrain_(?:runtime|samples_per_second)\b['\"]?\s{0,40}[:=]\s{0,4}\d|\*{3,} train metrics")


def is_of_a_trainer(text: str) -> bool:
    """Whether it is a trainer's record, which says nothing of what its script does next."""
    return _record().search(text) is not None


@functools.cache
def likely() -> re.Pattern[str]:
    """Words that programs print when they end, and some of them more often."""
    return re.compile(
        r"\btotal\b[\w ]{0,20}\b(?:time|runtime|duration|elapsed)\b(?! (?:spent )?(?:up to now|so far))"
        r"(?! for (?!(?:all|the|this|everything|training)\b))[^\d\n]{0,40}\d|"
        r"\b(?:total|full|overall)\b(?![\w ]{0,30} for (?!(?:all|the|this|everything|training)\b))"
        r"[\w ]{1,40}[:=]\s{0,4}\d[\d.]{0,20} ?"
        r"(?:s|secs?|seconds|min|mins|minutes|hours|hrs?|h)\b|"
        r"\b(?:train(?:ing)?|elapsed|run(?:ning)?|execution|wall(?:[- ]?clock)?)[ _]?(?:time|runtime|duration)\b(?!=)"
        r"[^\d\n|]{0,24}(?<![A-Za-z])\d[\d.:]{0,20}(?!\d|st\b|nd\b|rd\b|th\b)|"
        r"\b(?:finished|completed?|done|took)\b.{0,20}\b\d[\d.:]{0,20}\s{0,8}(?:s|sec|seconds?|m|min|minutes?|h|hours?)\b|"
        r"\b(?:finished|completed?|done) in \d{1,4}(?::\d\d){1,2}(?:\.\d{1,6})?\b|"
        r"\bresults?(?: files?)? (?:saved|written)\b|\bsaved (?:the |all ){0,2}results\b|"
        r"\brun (?:summary|stats|statistics):|"
        r"wandb: Synced \d{1,6} (?!media)|"
        r"\bbenchmark duration \(s\):?\s{1,40}\d|"
        r"\bfound no errors\b|\bno errors? (?:was |were )?(?:found|detected|occurred)\b|"
        r"^\W{0,4}\[(?:done|finished|completed?)\] \S|"
        r"\bend(?:ed)?[ _]time\b[\w ]{0,24}['\"]?\s{0,4}[:=]\s{0,4}[\w, ]{0,24}\d[:/-]\d\d|"
        r"\beval(?:uation)? (?:is |was )?(?:done|finished|completed?)\b|\bpeak memory\b|"
        r"\bprocess group destroyed\b|^\W*good-?bye\b.{0,40}$|\bran for:?\s{1,4}\d|"
        r"\ball\b[^.:]{0,60}\b(?:exported|saved|written|generated|converted|uploaded|copied|processed)\b|"
        r"^[^\w&/]*(?:\d[\d:.,/T-]{3,28}\W{1,3}){0,2}(?:all )?(?:done|finished|completed?|success(?:ful(?:ly)?)?|"
        r"bye|quit|passed|the end|(?<!  )end|fin)[\s.!]{0,80}\W{0,80}$",
        re.IGNORECASE,
    )


@functools.cache
def of_any_work() -> re.Pattern[str]:
    """Of the words that are only likely those that are said of one evaluation or of what was saved as well."""
    return re.compile(
        r"^[^\w&/]*(?:\d[\d:.,/T-]{3,28}\W{1,3}){0,2}(?:all )?(?:done|finished|completed?|success(?:ful(?:ly)?)?)"
        r"[\s.!]{0,80}\W{0,80}$|"
        r"\beval(?:uation)? (?:is |was )?(?:done|finished|completed?)\b|\bpeak memory\b|"
        r"\bresults?(?: files?)? (?:saved|written)\b|\bsaved (?:the |all ){0,2}results\b|"
        r"\ball\b[^.:]{0,60}\b(?:exported|saved|written|generated|converted|uploaded|copied|processed)\b",
        re.IGNORECASE,
    )


@functools.cache
def names_an_act() -> re.Pattern[str]:
    """A line that says what is being done, other than the training itself or its last act."""
    return re.compile(
        r"(?:^|[\]:|>-])\W{0,8}(?!(?:train|fit|fine-?tun|finish|complet|end|exit|shut|clean|clos)\w*ing\b)"
        rf"[A-Za-z]{{2,20}}ing\b(?!.{{0,80}}\bfinal\b)|{languages.OF_AN_ACT}",
        re.IGNORECASE,
    )


@functools.cache
def of_one_act() -> re.Pattern[str]:
    """What began in the same line is done: `Setting up the plugin... Done.`"""
    return re.compile(
        r"\w[^.…]{0,120}(?:\.{2,4}|…)\s{0,8}(?:done|finished|completed?|ok|success(?:ful(?:ly)?)?)\W*$", re.IGNORECASE
    )


@functools.cache
def bare() -> re.Pattern[str]:
    """What is done stands in the line before."""
    return re.compile(
        r"^[^\w&/]*(?:\d[\d:.,/T-]{3,28}\W{1,3}){0,2}"
        rf"(?:(?:all )?(?:done|finished|completed?|success(?:ful(?:ly)?)?)|{languages.DONE_ALONE})\W*$",
        re.IGNORECASE,
    )


@functools.cache
def so_far() -> re.Pattern[str]:
    """What is done up to now."""
    return re.compile(r"\b(?:so far|up to now|until now|to date)\b", re.IGNORECASE)


@functools.cache
def is_of_a_step() -> re.Pattern[str]:
    """What was saved into a file or folder that has a step's or a part's number."""
    return re.compile(
        r"\b(?:saved|written|exported|stored)\b.{0,200}?(?:iter\w{0,6}|steps?|epochs?|eval|fold|subject|shard|chunk|"
        r"trial)[_-]?\d",
        re.IGNORECASE,
    )


@functools.cache
def of_best() -> re.Pattern[str]:
    """The best of those up to now, behind a count whose end is not known."""
    return re.compile(
        r"(?<!new )\bbest (?:\w{1,20} ){0,3}(?:metric|acc\w*|score|result|loss|f1|m?ap|ar|bleu|perplexity|ppl|"
        r"checkpoint|model|psnr|ssim|fid|m?iou|dice|au?roc|auc|[wc]er|rmse|mae|mse|h-?mean|recall|precision|reward|return)\b\W{0,4}"
        r"(?:is |was |at (?:epoch |step |iter(?:ation)? )?)?\W{0,4}\d",
        re.IGNORECASE,
    )


_AVERAGE = (
    r"\b(?:total|average|avg|mean) (?:images|samples|tokens|examples|sequences|throughput|bandwidth)"
    r"(?: ?/ ?s(?:ec(?:ond)?)?| per second)?\b\W{0,4}\d"
)


@functools.cache
def of_all() -> re.Pattern[str]:
    """The last and the sum of all: such words may name an epoch or a checkpoint."""
    return re.compile(
        r"\bsav(?:ed|ing) (?:the )?final\b|\boptimizer stripped from\b|"
        r"\bsav(?:ed?|ing)\b.{0,200}?[/_-]final(?:\.\w{1,12}|/)?['\"]?[\s.!]*$|"
        r"\bfinal_"
        r"(?!lr|learning|div|layer|norm|dim|size|step|weight|scale|coef|prob|ratio|temp|alpha|beta|gamma|eps)\w{1,40}\b\W{1,4}\d{1,12}\.\d|"
        r"\bfinal[ _](?:\w{1,20}[ _])?(?:model|checkpoint|weights|results?|metrics?|accuracy|loss|score)\b"
        r"(?! (?:threshold|target|tolerance|weight|scale))|" + _AVERAGE,
        re.IGNORECASE,
    )


def is_average(text: str) -> bool:
    """Whether the words are a rate of all, or of the last steps."""
    return re.search(_AVERAGE, text, re.IGNORECASE) is not None


@functools.cache
def early() -> re.Pattern[str]:
    """The event, not the setting, the counter or the program's own source."""
    return re.compile(
        r"\bsignaling trainer to stop\b|\b(?:ran|run|is|are|running) out of patience\b|"
        r"\bpatience\b[\w ]{0,24}\b(?:exceeded|exhausted|expired|used up)\b|"
        r"\b(?:no|without|not|n't) (?:\w{1,20} ){0,2}improv\w{1,8}\b.{0,60}?\bstopp(?:ed|ing)\b|"
        r"\bstopp(?:ed|ing)\b.{0,60}?\b(?:no|without|not|n't) (?:\w{1,20} ){0,2}improv\w{1,8}\b|"
        r"\b(?:halted|stopped|ended|terminated|finished) (?:by|through|via|because of|due to) (?:the )?"
        r"early[ _-]?stopping\b|"
        r"(?<!/)\b(?:early[ _-]?stop(?:ping|ped)?|stopp(?:ing|ed)[ _-]early)\b"
        r"(?!\.[A-Za-z]|[^{}]{0,80}\{[A-Za-z_]|['\"]?\s{0,3}=|['\"]?\s{0,3}:\s{0,3}(?:true|false|none|\d|[{\['\"])|"
        r"(?:[ _-]|:\s)?(?:count(?:er|s)?\b|patience|"
        r"callback|rounds?|criteri\w*|monitor\w*|enabled|disabled|is |with |will |"
        r"in \d|if |when |not |round|config\w*|set ))",
        re.IGNORECASE,
    )


@functools.cache
def of_the_best() -> re.Pattern[str]:
    """It names the epoch or step of something, which is not where the program stands."""
    return re.compile(
        r"\b(?:best|highest|lowest|early[ _-]?stop(?:ping|ped)?)\b.{0,80}?\b(?:at|in|from|on|of|is|was|:|=)\W{0,4}"
        r"(?:epoch|step|iter\w*|round)\b|\bbest[ _-](?:epoch|step|iter\w*|round)\b|"
        r"(?:最佳|最好|最优|最高|最低)[^|]{0,60}?\b(?:epoch|step|iter\w*|round)\W{0,2}\d|"
        r"\b(?:best|highest|lowest)\b[^|]{0,60}?\d\W{1,4}(?:ep|epoch|step|iter\w*|round)\b\W{1,4}\d{1,9}\b(?!\s{0,4}/)",
        re.IGNORECASE,
    )


@functools.cache
def of_settings() -> re.Pattern[str]:
    """An object of settings, as it prints itself: `Namespace(epochs=500, epoch=199, ...)` counts nothing."""
    return re.compile(r"\b[A-Z]\w{2,40}\((?:\w{1,40}=[^,]{0,200}, ?){3}")


@functools.cache
def is_final() -> re.Pattern[str]:
    """A result that is a share of all: `Final: 59/1319`."""
    return re.compile(
        r"^\W{0,8}(?:final|overall|result|score|accuracy)\b[\w ]{0,20}:\s{0,4}\d{1,9}\s?/\s?\d", re.IGNORECASE
    )


def is_heading(text: str) -> bool:
    """Whether it names what stands below it, and gives nothing itself: `FINAL RESULTS SUMMARY`, `SAVE FINAL MODEL`."""
    if any(map(str.isdigit, text)) or text.rstrip().endswith("."):
        return False
    return re.search(r"\bsav(?:ed|ing)\b", text, re.IGNORECASE) is None


@functools.cache
def of_the_run() -> re.Pattern[str]:
    """What is printed once for all epochs: the time of the run, the table of a test."""
    return re.compile(
        r"\btotal[ _-](?:train[a-z]*|run[a-z]*|elapsed|wall[a-z]*|execution|job)(?![a-z])"
        r"(?![\w .:=()-]{0,40}?(?<![a-z])(?:flops?|tokens?|param\w*|steps?|iter\w*|updates?|epochs?|batch\w*|samples?|"
        r"images?|examples?|size|files?|gpus?|ranks?|devices?|estimat\w*)\b)[\w .:=()-]{0,40}?\d|"
        r"\b(?:test|validate) metric\b.{0,80}?\bdataloader\b|\bdataloader:\d{1,3} (?:test|validate) results\b",
        re.IGNORECASE,
    )


@functools.cache
def _path() -> re.Pattern[str]:
    """Names of folders are no words of a sentence."""
    return re.compile(
        r"(?<![\w/])(?:[~.]{0,2}/[^\s,;'\"]{1,400}|\w[\w.-]{0,100}(?:[/\\][\w.-]{1,100}){2,20}/?|[A-Z]:\\\S{1,400})"
    )


@functools.cache
def of_a_sum() -> re.Pattern[str]:
    """Behind the last count such a word ends the run also where the count is not full: a limit of steps came first."""
    return re.compile(r"\b(?:final|total|average|avg|mean|optimizer stripped)\b|\bfinal_", re.IGNORECASE)


@functools.cache
def result() -> re.Pattern[str]:
    """What an evaluation found, where it is the last line and stands once."""
    return re.compile(
        r"(?<![a-z])(?:f1|fb1|exact[_ ]match|bleu|rouge-?\w?|m?ap(?:50)?|miou|wer|perplexity|ppl|accuracy|"
        r"precision|recall|auc|acc@1|top[-_]?1)\b['\"]?(?:\s{0,2}\([\w -]{1,24}\))?"
        r"\s{0,24}[:=]?\s{0,4}\[?\d[\d.]{0,20}%?",
        re.IGNORECASE,
    )


@functools.cache
def evaluated() -> re.Pattern[str]:
    """An evaluation that is over, behind a training that is, or in a program that does nothing else."""
    return re.compile(
        r"\b(?:finish(?:ed)?|completed|done with)\b(?: the)? (?:evaluat\w+|inference|predict\w+|generat\w+|test\w*|"
        r"benchmark\w*|scor\w+)\b|"
        r"\b(?:test(?:s|ing)?|evaluation|inference|prediction|generation|export|conversion|transcription|extraction|analysis|"
        r"verification|sampling|benchmark(?:s|ing)?|cleaning|processing)\b(?: process)?(?: is| are| was| were| has)? "
        r"(?:finished|completed?|done|succeeded|successful)\b",
        re.IGNORECASE,
    )


@functools.cache
def tests() -> re.Pattern[str]:
    """What pytest ends with; a script may test its machine so, before the run."""
    return re.compile(r"^=+ (?:\d{1,9} \w{1,20}, ){0,6}\d{1,9} passed\b[^=]{0,80} in [\d.:]{1,12}s")


@functools.cache
def passes() -> re.Pattern[str]:
    """A check's own verdict on all that it saw, errors among it."""
    return re.compile(r"^\W{0,8}PASS(?:ED)?(?=\W*$|\s?[:!]\s)", re.IGNORECASE)


@functools.cache
def done() -> re.Pattern[str]:
    """Any work that is done, other than a preparation, where it is the last line and no count is open; in the languages
    in which people write their scripts."""
    return re.compile(
        r"^(?!.*%complete)(?!.*\bdone (?:running|calling|reading|restoring)\b)"
        r"(?!.*\b(?:install|import|configur|start|launch|creat|allocat|register|authenticat|log(?:ged|ging) in|mount|"
        r"clon|pull|copi|sync|activat|connect|(?:un)?set\b|select|switch)).*"
        r"\b(?:done|finished|completed?|succeeded|success(?:ful(?:ly)?)?|all good)\b"
        r"(?!['\"]?\s{0,3}[=:]|[ _-](?:in \d{1,3}%|rate|ratio|with errors?)|\s{0,4}\d{1,7}\s*$)|"
        r"^(?!.*\b(?:checkpoint|ckpt|model|weight|config|cache|vocab|token|arg|param|setting|state|log)).*"
        r"\b(?:saved|written|exported|stored) (?:in|to|as|at|into)\b|"
        rf"^(?!.*(?:{languages.OF_A_PART})).*(?:{languages.DONE})",
        re.IGNORECASE,
    )


@functools.cache
def _of_a_part() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:epoch(?:_\w{1,12})?|step|iter(?:ation)?|batch|eval\w*|valid\w*|load\w*|init\w*|setup|set up|warm\w*|"
        r"compil\w*|captur\w*|"
        r"checkpoint\w*|data\w*|token\w*|pre-?process\w*|prepar\w*|start-?up|hand-?shake|prolog\w*|epilog\w*|preflight|"
        r"build\w*|built|phases?|stages?|folds?|chunks?|shard\w*|parts?|cach\w*|download\w*|request\w*|forward|backward|rendezvous|"
        r"barrier|connect\w*|process \d+|rank \d+|task \d+|worker \d+|"
        r"\d{1,2}(?:\.\d{1,3})?%\)?\W{0,3}(?:done|completed?|finished)|"
        r"visuali[sz]ation|plotting|job ?id|clean-?up|already (?:done|complete\w*|finished|trained|processed)|"
        r"done \(t=\d[\d.]{0,12}s?|(?:done|finish(?:ed|ing)?|completed?) (?:running|calling|restoring)|"
        r"read(?:ing)?|pars(?:ing|ed)|import(?:ing|ed)?|"
        r"(?<!all )\d[\d,]{0,12} (?:iterations?|steps?|batches|updates) (?:completed?|done|finished)|"
        r"(?:trial|run|job(?: ?id)?|test|experiment|round|sweep|seed|image|sample|file|episode|game)s?:? ?#?\d{1,4}"
        r"(?= (?:is |was |has )?(?:finished|done|completed?|ended)))\b|"
        r"第\s?[一二三四五六七八九十\d]{1,4}\s?个?(?:阶段|轮|折|步)[^，。；！,;!]{0,12}(?:完成|结束|完毕)|"
        r"(?:完成|结束|完毕)\W{0,4}(?:现在|接下来|下面)?(?:开始|正在|启动|准备)(?!时间)",
        re.IGNORECASE,
    )


@functools.cache
def _negated() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:not|never|no|fail\w*|abort\w*|cancel\w*|killed|until|unless|when|before|if|will|unable|without|waiting|"
        r"unsuccessful\w*|nothing to (?:be|do)|expected|should|estimat\w*|eta|remaining|interrupted|prematurely)\b|"
        r"n't\b",
        re.IGNORECASE,
    )


@functools.cache
def _harmless() -> re.Pattern[str]:
    return re.compile(
        r"\b(?:0|no|zero|without) (?:\w+ )?(?:errors?|failures?|failed)\b|\bno (?:further |more )?improvements?\b|"
        r"\b(?:not|never|n't) improv\w+",
        re.IGNORECASE,
    )


@functools.cache
def begins() -> re.Pattern[str]:
    """Something that was only begun; a shell that traces its commands writes each before it runs."""
    return re.compile(
        r"^\+{1,4} (?!(?:exit|echo|printf|date|set|true|cleanup|rm|deactivate|module|:)\b|\w{1,80}=)[\w./~-]|"
        r"\b(?:start(?:ing|ed)?|beginn?(?:ing)?|running|"
        r"loading|evaluating|validating|launching|resum(?:e|ing)|initiali[sz]ing|"
        r"(?<!done )waiting|"
        r"building|creating|preparing|setting up|constructing|(?:re)?trying|retries|restarting|"
        r"epoch_start|eval_start|block_start)\b|"
        r"(?:开始|启动)(?!时间|于)|正在|加载中|准备(?!完成)",
        re.IGNORECASE,
    )


@functools.cache
def of_a_fold() -> re.Pattern[str]:
    """One of several parts, each of which is trained, stopped early and evaluated."""
    return re.compile(r"\b(?:fold|split|subject|seed)\b\W{0,3}\d{1,4}\b", re.IGNORECASE)


@functools.cache
def of_a_training() -> re.Pattern[str]:
    """The word by itself, not within a path or the name of a setting, nor in what transformers advises on loading."""
    return re.compile(r"(?<![/\\.=_-])(?<!You should probably )\btrain(?:ing)?\b(?![/\\._-])", re.IGNORECASE)


@functools.cache
def waits() -> re.Pattern[str]:
    """It is not over."""
    return re.compile(r"\b(?:(?<!done )waiting|retrying|restarting|resuming)\b", re.IGNORECASE)


@functools.cache
def is_prepared() -> re.Pattern[str]:
    """What a program needs is there: its work comes next."""
    return re.compile(
        r"\b(?:model|data ?(?:sets?|loaders?)?|tokenizer|weights|checkpoint|vocab\w*|corpus)\b.{0,40}?"
        r"\b(?:loaded|ready)\b|"
        r"\bloaded (?:the )?(?:model|data ?sets?|tokenizer|weights|checkpoint|vocab\w*|corpus)\b",
        re.IGNORECASE,
    )


@functools.cache
def prepares() -> re.Pattern[str]:
    """What a bar is called that is drawn in front of the work."""
    return re.compile(
        r"\b(?:load|download|fetch|tokeniz|group|map|filter|pack)\w*|\bgenerating \w+ split\b", re.IGNORECASE
    )


@functools.cache
def step() -> re.Pattern[str]:
    """A step's number."""
    return re.compile(r"\b(?:step|iter|iteration|epoch)\b['\"]?[ :=/\[#]{1,3}\d{1,12}\b(?!\.\d)", re.IGNORECASE)


def step_of(text: str) -> str:
    """The number of the step that a line names; "" without one."""
    match = step().search(text)
    return "" if match is None else re.findall(r"\d+", match[0])[-1]


@functools.cache
def _summary() -> re.Pattern[str]:
    return re.compile(
        r"\s{0,80}(?:wandb: |\*{3,}|best\b|final\b|last\b)|.{0,200}?\b(?:sav(?:e|ed|ing)|checkpoint\w*)\b",
        re.IGNORECASE,
    )


@functools.cache
def of_what_was() -> re.Pattern[str]:
    """A record of what has been: an interval's end, a measurement.  It names a step, and no step follows from it."""
    return re.compile(r"['\"]event_type['\"]\s{0,4}:\s{0,4}['\"](?:POINT_IN_TIME|INTERVAL_END)['\"]")


@functools.cache
def _of_a_record() -> re.Pattern[str]:
    return re.compile(
        r"\bkey['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:run_stop|result_validity)\b|:::MLP\w{0,20}.{0,300}\brun_stop\b"
    )


@functools.cache
def _of_a_good_record() -> re.Pattern[str]:
    """MLPerf's `"status": "success"`, and `"success": true` of its first rounds, of which some write no value; the
    verdict of its load generator."""
    return re.compile(
        r"['\"](?-i:VALID)['\"]|\bsuccess['\"]?\s{0,4}(?:[,}\])]|:\s{0,4}(?:true|1)\b|$)|\brun_stop\s*$", re.IGNORECASE
    )


@functools.cache
def word() -> re.Pattern[str]:
    """Of a line that is more than a rule below a table, also one that was logged."""
    return re.compile(r"(?<![A-Za-z\d])(?!info()\b)[A-Za-z\d]|[^\x00-\x7f─═━│]")


@functools.cache
def info() -> re.Pattern[str]:
    """The front of glog's ordinary lines."""
    return re.compile(r"\s{0,80}I\d{4} ")


@functools.cache
def member_done() -> re.Pattern[str]:
    """A member's last message: a count in it is the one that it reached."""
    return re.compile(
        r"\b(?:rank|worker|process|task)[ _]?\d{1,7}\b[\s:,]{1,4}(?:is |has |was )?(?:done|finished|completed)\b"
        r"(?!\W{0,3}(?:[a-z]{1,12} ){0,3}(?:\w{1,12}_)?(?:steps?|epochs?|iter\w*|batch\w*|rounds?|updates?)\b)",
        re.IGNORECASE,
    )


def goes_on(text: str) -> bool:
    """Whether a line counts a step, other than in a summary of what was."""
    if step().search(text) is None:
        return False
    return _summary().match(text) is None and not any(words().search(text) for words in (member_done, of_the_best))


def is_end_of_run(text: str) -> bool:
    """A benchmark's record that its run is over, well or not."""
    return ("run_stop" in text or "result_validity" in text) and _of_a_record().search(text) is not None


def means_all(text: str) -> bool:
    """Whether a line says that everything is over, and well."""
    if is_end_of_run(text):
        return _of_a_good_record().search(text) is not None
    if _record().search(text) is not None:
        return True
    return any(
        (whole().search(part) and not denies(part))
        or ((certain().search(part) or elsewhere().search(part)) and not is_other(_where().sub("", part)))
        for part in _sentence().split(text)
    )


def is_other(text: str) -> bool:
    """Whether the words are about a part of the run, or deny the end."""
    return _of_a_part().search(_with_results().sub("", _plain(text))) is not None or denies(text)


def without_paths(text: str) -> str:
    """The words of a line, without the names of folders and files in them."""
    return _path().sub("", text) if "/" in text or "\\" in text else text


def _plain(text: str) -> str:
    return _harmless().sub("", without_paths(text).replace("_", " "))


@functools.cache
def _with_results() -> re.Pattern[str]:
    """What was reached stands behind the words of the end."""
    return re.compile(r"\bwith (?:a |an |the )?(?:best|final|total|average|mean|test|validation)\b.*$", re.IGNORECASE)


@functools.cache
def _where() -> re.Pattern[str]:
    """Where a count stood at the end, which names no part: `Training complete at step 40000.`"""
    return re.compile(
        r"\b(?:at|after) (?:(?:global[ _])?(?:step|epoch|iter(?:ation)?|round|update)s?\W{1,2}\d[\d,]{0,15}\b|"
        r"\d[\d,]{0,15} (?:steps|epochs|iter(?:ation)?s|rounds|updates)\b)",
        re.IGNORECASE,
    )


def denies(text: str) -> bool:
    """Whether the words say that it is not so, or so for some only."""
    plain = _plain(text)
    return _negated().search(plain) is not None or is_of_some(plain)
