"""Citations of the methods, data, encoders, tests and tools that a report uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from sentdist.errors import DataError
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.objectives import OBJECTIVES, terms_of
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage, topological
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.report.sweep_rows import SweepRows
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.text import Citation


def _works(*citations: Citation) -> dict[str, Citation]:
    works = {citation.key: citation for citation in citations}
    assert len(works) == len(set(citations)), "two works have one key"
    return works


_STS_AUTHORS = ("Eneko Agirre", "Daniel Cer", "Mona Diab", "Aitor Gonzalez-Agirre")

# fmt: off
CITATIONS: dict[str, Citation] = _works(
    *(work for objective in OBJECTIVES.values() for work in objective.citations),
    Citation(key="drophead", kind="inproceedings", authors=("Wangchunshu Zhou", "Tao Ge", "Furu Wei", "Ming Zhou", "Ke Xu"), title="Scheduled DropHead: A Regularization Method for Transformer Models",
             where="Findings of EMNLP", year=2020, url="https://arxiv.org/abs/2004.13342", role="baseline"),
    Citation(key="dropattention", kind="misc", authors=("Lin Zehui", "Pengfei Liu", "Luyao Huang", "Junkun Chen", "Xipeng Qiu", "Xuanjing Huang"), title="DropAttention: A Regularization Method for Fully-Connected Self-Attention Networks",
             where="arXiv 1907.11065", year=2019, url="https://arxiv.org/abs/1907.11065", role="baseline"),
    Citation(key="sbert", kind="inproceedings", authors=("Nils Reimers", "Iryna Gurevych"), title="Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
             where="EMNLP-IJCNLP", year=2019, url="https://arxiv.org/abs/1908.10084", role="encoder family and file format", gave=("*sentence-transformers/*",)),
    Citation(key="minilm", kind="inproceedings", authors=("Wenhui Wang", "Furu Wei", "Li Dong", "Hangbo Bao", "Nan Yang", "Ming Zhou"), title="MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
             where="NeurIPS", year=2020, url="https://arxiv.org/abs/2002.10957", role="pretrained encoder", gave=("*minilm*",)),
    Citation(key="roberta", kind="misc", authors=("Yinhan Liu", "Myle Ott", "Naman Goyal", "Jingfei Du", "Mandar Joshi", "Danqi Chen", "Omer Levy", "Mike Lewis", "Luke Zettlemoyer", "Veselin Stoyanov"), title="RoBERTa: A Robustly Optimized BERT Pretraining Approach",
             where="arXiv 1907.11692", year=2019, url="https://arxiv.org/abs/1907.11692", role="pretrained encoder", gave=("*roberta-*",)),
    Citation(key="nomic", kind="misc", authors=("Zach Nussbaum", "John X. Morris", "Brandon Duderstadt", "Andriy Mulyar"), title="Nomic Embed: Training a Reproducible Long Context Text Embedder",
             where="arXiv 2402.01613", year=2024, url="https://arxiv.org/abs/2402.01613", role="pretrained encoder", gave=("nomic-ai/nomic-embed-text-*",)),
    Citation(key="sts12", kind="inproceedings", authors=_STS_AUTHORS, title="SemEval-2012 Task 6: A Pilot on Semantic Textual Similarity",
             where="SemEval", year=2012, url="https://aclanthology.org/S12-1051", role="test set"),
    Citation(key="sts13", kind="inproceedings", authors=(*_STS_AUTHORS, "Weiwei Guo"), title="*SEM 2013 Shared Task: Semantic Textual Similarity",
             where="*SEM", year=2013, url="https://aclanthology.org/S13-1004", role="test set"),
    Citation(key="sts14", kind="inproceedings", authors=("Eneko Agirre", "Carmen Banea", "Claire Cardie", "Daniel Cer", "Mona Diab", "Aitor Gonzalez-Agirre", "Weiwei Guo", "Rada Mihalcea", "German Rigau", "Janyce Wiebe"), title="SemEval-2014 Task 10: Multilingual Semantic Textual Similarity",
             where="SemEval", year=2014, url="https://aclanthology.org/S14-2010", role="test set"),
    Citation(key="sts15", kind="inproceedings", authors=("Eneko Agirre", "Carmen Banea", "Claire Cardie", "Daniel Cer", "Mona Diab", "Aitor Gonzalez-Agirre", "Weiwei Guo", "Iñigo Lopez-Gazpio", "Montse Maritxalar", "Rada Mihalcea", "German Rigau", "Larraitz Uria", "Janyce Wiebe"), title="SemEval-2015 Task 2: Semantic Textual Similarity, English, Spanish and Pilot on Interpretability",
             where="SemEval", year=2015, url="https://aclanthology.org/S15-2045", role="test set"),
    Citation(key="sts16", kind="inproceedings", authors=("Eneko Agirre", "Carmen Banea", "Daniel Cer", "Mona Diab", "Aitor Gonzalez-Agirre", "Rada Mihalcea", "German Rigau", "Janyce Wiebe"), title="SemEval-2016 Task 1: Semantic Textual Similarity, Monolingual and Cross-Lingual Evaluation",
             where="SemEval", year=2016, url="https://aclanthology.org/S16-1081", role="test set"),
    Citation(key="stsb", kind="inproceedings", authors=("Daniel Cer", "Mona Diab", "Eneko Agirre", "Iñigo Lopez-Gazpio", "Lucia Specia"), title="SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused Evaluation",
             where="SemEval", year=2017, url="https://aclanthology.org/S17-2001", role="similarity data", gave=("sts*/stsb", "*/stsb*-sts*")),
    Citation(key="sick", kind="inproceedings", authors=("Marco Marelli", "Stefano Menini", "Marco Baroni", "Luisa Bentivogli", "Raffaella Bernardi", "Roberto Zamparelli"), title="A SICK Cure for the Evaluation of Compositional Distributional Semantic Models",
             where="LREC", year=2014, url="https://aclanthology.org/L14-1314", role="similarity data", gave=("sts*/sick", "*/sickr-sts*")),
    Citation(key="senteval", kind="inproceedings", authors=("Alexis Conneau", "Douwe Kiela"), title="SentEval: An Evaluation Toolkit for Universal Sentence Representations",
             where="LREC", year=2018, url="https://arxiv.org/abs/1803.05449", role="protocol of the transfer tasks"),
    Citation(key="mr", kind="inproceedings", authors=("Bo Pang", "Lillian Lee"), title="Seeing Stars: Exploiting Class Relationships for Sentiment Categorization with Respect to Rating Scales",
             where="ACL", year=2005, url="https://aclanthology.org/P05-1015", role="transfer task"),
    Citation(key="cr", kind="inproceedings", authors=("Minqing Hu", "Bing Liu"), title="Mining and Summarizing Customer Reviews",
             where="KDD", year=2004, url="https://doi.org/10.1145/1014052.1014073", role="transfer task"),
    Citation(key="subj", kind="inproceedings", authors=("Bo Pang", "Lillian Lee"), title="A Sentimental Education: Sentiment Analysis Using Subjectivity Summarization Based on Minimum Cuts",
             where="ACL", year=2004, url="https://aclanthology.org/P04-1035", role="transfer task"),
    Citation(key="mpqa", kind="article", authors=("Janyce Wiebe", "Theresa Wilson", "Claire Cardie"), title="Annotating Expressions of Opinions and Emotions in Language",
             where="Language Resources and Evaluation 39", year=2005, url="https://doi.org/10.1007/s10579-005-7880-9", role="transfer task"),
    Citation(key="sst2", kind="inproceedings", authors=("Richard Socher", "Alex Perelygin", "Jean Wu", "Jason Chuang", "Christopher D. Manning", "Andrew Ng", "Christopher Potts"), title="Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank",
             where="EMNLP", year=2013, url="https://aclanthology.org/D13-1170", role="transfer task"),
    Citation(key="trec", kind="inproceedings", authors=("Xin Li", "Dan Roth"), title="Learning Question Classifiers",
             where="COLING", year=2002, url="https://aclanthology.org/C02-1150", role="transfer task"),
    Citation(key="mrpc", kind="inproceedings", authors=("William B. Dolan", "Chris Brockett"), title="Automatically Constructing a Corpus of Sentential Paraphrases",
             where="IWP", year=2005, url="https://aclanthology.org/I05-5002", role="paraphrase data"),
    Citation(key="scifact", kind="inproceedings", authors=("David Wadden", "Shanchuan Lin", "Kyle Lo", "Lucy Lu Wang", "Madeleine van Zuylen", "Arman Cohan", "Hannaneh Hajishirzi"), title="Fact or Fiction: Verifying Scientific Claims",
             where="EMNLP", year=2020, url="https://arxiv.org/abs/2004.14974", role="retrieval data"),
    Citation(key="beir", kind="inproceedings", authors=("Nandan Thakur", "Nils Reimers", "Andreas Rücklé", "Abhishek Srivastava", "Iryna Gurevych"), title="BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models",
             where="NeurIPS Datasets and Benchmarks", year=2021, url="https://arxiv.org/abs/2104.08663", role="format of retrieval data"),
    Citation(key="cranfield", kind="misc", authors=("Cyril Cleverdon",), title="The Cranfield Tests on Index Language Devices",
             where="Aslib Proceedings 19(6)", year=1967, url="https://doi.org/10.1108/eb050097", role="retrieval data"),
    Citation(key="qqp", kind="misc", authors=("Shankar Iyer", "Nikhil Dandekar", "Kornél Csernai"), title="First Quora Dataset Release: Question Pairs",
             where="Quora", year=2017, url="https://quoradata.quora.com/First-Quora-Dataset-Release-Question-Pairs", role="paraphrase data", gave=("pairs/qqp*",)),
    Citation(key="twitter_url", kind="inproceedings", authors=("Wuwei Lan", "Siyu Qiu", "Hua He", "Wei Xu"), title="A Continuously Growing Dataset of Sentential Paraphrases",
             where="EMNLP", year=2017, url="https://arxiv.org/abs/1708.00391", role="paraphrase data"),
    Citation(key="pit2015", kind="inproceedings", authors=("Wei Xu", "Chris Callison-Burch", "Bill Dolan"), title="SemEval-2015 Task 1: Paraphrase and Semantic Similarity in Twitter (PIT)",
             where="SemEval", year=2015, url="https://aclanthology.org/S15-2001", role="paraphrase data"),
    Citation(key="useb", kind="inproceedings", authors=("Kexin Wang", "Nils Reimers", "Iryna Gurevych"), title="TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised Sentence Embedding Learning",
             where="Findings of EMNLP", year=2021, url="https://arxiv.org/abs/2104.06979", role="protocol of re-ranking and paraphrase tasks"),
    Citation(key="semeval2016cqa", kind="inproceedings", authors=("Preslav Nakov", "Lluís Màrquez", "Alessandro Moschitti", "Walid Magdy", "Hamdy Mubarak", "Abed Alhakim Freihat", "Jim Glass", "Bilal Randeree"), title="SemEval-2016 Task 3: Community Question Answering",
             where="SemEval", year=2016, url="https://aclanthology.org/S16-1083", role="re-ranking data"),
    Citation(key="askubuntu", kind="inproceedings", authors=("Tao Lei", "Hrishikesh Joshi", "Regina Barzilay", "Tommi Jaakkola", "Kateryna Tymoshenko", "Alessandro Moschitti", "Lluís Màrquez"), title="Semi-supervised Question Retrieval with Gated Convolutions",
             where="NAACL-HLT", year=2016, url="https://arxiv.org/abs/1512.05726", role="re-ranking data"),
    Citation(key="scidocs", kind="inproceedings", authors=("Arman Cohan", "Sergey Feldman", "Iz Beltagy", "Doug Downey", "Daniel Weld"), title="SPECTER: Document-level Representation Learning using Citation-informed Transformers",
             where="ACL", year=2020, url="https://arxiv.org/abs/2004.07180", role="re-ranking data"),
    Citation(key="cqadupstack", kind="inproceedings", authors=("Doris Hoogeveen", "Karin M. Verspoor", "Timothy Baldwin"), title="CQADupStack: A Benchmark Data Set for Community Question-Answering Research",
             where="ADCS", year=2015, url="https://doi.org/10.1145/2838931.2838934", role="retrieval data"),
    Citation(key="faqir", kind="inproceedings", authors=("Mladen Karan", "Jan Šnajder"), title="FAQIR: A Frequently Asked Questions Retrieval Test Collection",
             where="Text, Speech, and Dialogue", year=2016, url="https://takelab.fer.hr/data/faqir/", role="retrieval data", gave=("retrieval/faqir",)),
    Citation(key="cough", kind="misc", authors=("Xinliang Frederick Zhang", "Heming Sun", "Xiang Yue", "Emmett Jesrani", "Simon Lin", "Huan Sun"), title="COUGH: A Challenge Dataset and Models for COVID-19 FAQ Retrieval",
             where="arXiv 2010.12800", year=2020, url="https://arxiv.org/abs/2010.12800", role="retrieval data", gave=("retrieval/cough",)),
    Citation(key="banking77", kind="inproceedings", authors=("Iñigo Casanueva", "Tadas Temčinas", "Daniela Gerz", "Matthew Henderson", "Ivan Vulić"), title="Efficient Intent Detection with Dual Sentence Encoders",
             where="NLP for Conversational AI", year=2020, url="https://arxiv.org/abs/2003.04807", role="intents"),
    Citation(key="v_measure", kind="inproceedings", authors=("Andrew Rosenberg", "Julia Hirschberg"), title="V-Measure: A Conditional Entropy-Based External Cluster Evaluation Measure",
             where="EMNLP-CoNLL", year=2007, url="https://aclanthology.org/D07-1043", role="measure of clusters"),
    Citation(key="str2022", kind="inproceedings", authors=("Mohamed Abdalla", "Krishnapriya Vishnubhotla", "Saif M. Mohammad"), title="What Makes Sentences Semantically Related: A Textual Relatedness Dataset and Empirical Study",
             where="EACL", year=2023, url="https://arxiv.org/abs/2110.04845", role="test set"),
    Citation(key="snli", kind="inproceedings", authors=("Samuel R. Bowman", "Gabor Angeli", "Christopher Potts", "Christopher D. Manning"), title="A Large Annotated Corpus for Learning Natural Language Inference",
             where="EMNLP", year=2015, url="https://arxiv.org/abs/1508.05326", role="training data", gave=("nli/snli", "nli/snli_counterfactual", "nli/triplets", "*/all-nli*", "*/nli-*")),
    Citation(key="mnli", kind="inproceedings", authors=("Adina Williams", "Nikita Nangia", "Samuel R. Bowman"), title="A Broad-Coverage Challenge Corpus for Sentence Understanding through Inference",
             where="NAACL-HLT", year=2018, url="https://arxiv.org/abs/1704.05426", role="training data", gave=("nli/mnli", "nli/triplets", "*/all-nli*", "*/nli-*")),
    Citation(key="counterfactual", kind="inproceedings", authors=("Divyansh Kaushik", "Eduard Hovy", "Zachary C. Lipton"), title="Learning the Difference that Makes a Difference with Counterfactually-Augmented Data",
             where="ICLR", year=2020, url="https://arxiv.org/abs/1909.12434", role="training data", gave=("nli/snli_counterfactual", "nli/triplets")),
    Citation(key="new_protocols", kind="inproceedings", authors=("Samuel R. Bowman", "Jennimaria Palomaki", "Livio Baldini Soares", "Emily Pitler"), title="New Protocols and Negative Results for Textual Entailment Data Collection",
             where="EMNLP", year=2020, url="https://arxiv.org/abs/2004.11997", role="training data", gave=("nli/new_protocols", "nli/triplets")),
    Citation(key="paranmt", kind="inproceedings", authors=("John Wieting", "Kevin Gimpel"), title="ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence Embeddings with Millions of Machine Translations",
             where="ACL", year=2018, url="https://arxiv.org/abs/1711.05732", role="training data", gave=("pairs/paranmt*",)),
    Citation(key="glue", kind="inproceedings", authors=("Alex Wang", "Amanpreet Singh", "Julian Michael", "Felix Hill", "Omer Levy", "Samuel R. Bowman"), title="GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
             where="ICLR", year=2019, url="https://arxiv.org/abs/1804.07461", role="training data", gave=("pairs/qnli",)),
    Citation(key="wikisplit", kind="inproceedings", authors=("Jan A. Botha", "Manaal Faruqui", "John Alex", "Jason Baldridge", "Dipanjan Das"), title="Learning To Split and Rephrase From Wikipedia Edit History",
             where="EMNLP", year=2018, url="https://arxiv.org/abs/1808.09468", role="training data", gave=("pairs/wikisplit",)),
    Citation(key="flickr30k", kind="article", authors=("Peter Young", "Alice Lai", "Micah Hodosh", "Julia Hockenmaier"), title="From Image Descriptions to Visual Denotations: New Similarity Metrics for Semantic Inference over Event Descriptions",
             where="Transactions of the ACL 2", year=2014, url="https://aclanthology.org/Q14-1006", role="training data", gave=("text/flickr30k_captions",)),
    Citation(key="stackfaq", kind="article", authors=("Mladen Karan", "Jan Šnajder"), title="Paraphrase-Focused Learning to Rank for Domain-Specific Frequently Asked Questions Retrieval",
             where="Expert Systems with Applications 91", year=2018, url="https://doi.org/10.1016/j.eswa.2017.09.031", role="FAQ retrieval data", gave=("retrieval/stackfaq",)),
    Citation(key="geometry", kind="inproceedings", authors=("Tongzhou Wang", "Phillip Isola"), title="Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere",
             where="ICML", year=2020, url="https://arxiv.org/abs/2005.10242", role="alignment and uniformity"),
    Citation(key="effective_rank", kind="inproceedings", authors=("Olivier Roy", "Martin Vetterli"), title="The Effective Rank: A Measure of Effective Dimensionality",
             where="EUSIPCO", year=2007, url="https://ieeexplore.ieee.org/document/7098875", role="effective rank"),
    Citation(key="pigeonhole", kind="article", authors=("Art B. Owen",), title="The Pigeonhole Bootstrap",
             where="Annals of Applied Statistics 1", year=2007, url="https://arxiv.org/abs/0712.1111", role="test over seeds and items"),
    Citation(key="moderated", kind="article", authors=("Gordon K. Smyth",), title="Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray Experiments",
             where="Statistical Applications in Genetics and Molecular Biology 3", year=2004, url="https://doi.org/10.2202/1544-6115.1027", role="variance of few seeds"),
    Citation(key="jackknife", kind="misc", authors=("Bradley Efron",), title="The Jackknife, the Bootstrap and Other Resampling Plans",
             where="SIAM", year=1982, url="https://doi.org/10.1137/1.9781611970319", role="contributions of items to a score"),
    Citation(key="max_t", kind="misc", authors=("Peter H. Westfall", "S. Stanley Young"), title="Resampling-Based Multiple Testing",
             where="Wiley", year=1993, url="https://www.wiley.com/en-us/9780471557616", role="correction over a table"),
    Citation(key="confidence_set", kind="article", authors=("Peter R. Hansen", "Asger Lunde", "James M. Nason"), title="The Model Confidence Set",
             where="Econometrica 79", year=2011, url="https://doi.org/10.3982/ECTA5771", role="which rows may be the best"),
    Citation(key="best_of", kind="inproceedings", authors=("Jesse Dodge", "Suchin Gururangan", "Dallas Card", "Roy Schwartz", "Noah A. Smith"), title="Show Your Work: Improved Reporting of Experimental Results",
             where="EMNLP-IJCNLP", year=2019, url="https://arxiv.org/abs/1909.03004", role="expected best score of n trials"),
    Citation(key="best_of_unbiased", kind="inproceedings", authors=("Raphael Tang", "Jaejun Lee", "Ji Xin", "Xinyu Liu", "Yaoliang Yu", "Jimmy Lin"), title="Showing Your Work Doesn't Always Work",
             where="ACL", year=2020, url="https://arxiv.org/abs/2004.13705", role="its unbiased estimator"),
    Citation(key="selection_bias", kind="article", authors=("Gavin C. Cawley", "Nicola L. C. Talbot"), title="On Over-fitting in Model Selection and Subsequent Selection Bias in Performance Evaluation",
             where="Journal of Machine Learning Research 11", year=2010, url="https://jmlr.org/papers/v11/cawley10a.html", role="optimism of choosing on dev"),
    Citation(key="ped_anova", kind="inproceedings", authors=("Shuhei Watanabe", "Archit Bansal", "Frank Hutter"), title="PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces",
             where="IJCAI", year=2023, url="https://arxiv.org/abs/2304.10255", role="importance of fields"),
    Citation(key="fanova", kind="inproceedings", authors=("Frank Hutter", "Holger Hoos", "Kevin Leyton-Brown"), title="An Efficient Approach for Assessing Hyperparameter Importance",
             where="ICML", year=2014, url="https://proceedings.mlr.press/v32/hutter14.html", role="importance of fields"),
    Citation(key="optuna", kind="inproceedings", authors=("Takuya Akiba", "Shotaro Sano", "Toshihiko Yanase", "Takeru Ohta", "Masanori Koyama"), title="Optuna: A Next-generation Hyperparameter Optimization Framework",
             where="KDD", year=2019, url="https://arxiv.org/abs/1907.10902", role="suggestions, importance of fields"),
    Citation(key="halving", kind="inproceedings", authors=("Liam Li", "Kevin Jamieson", "Afshin Rostamizadeh", "Ekaterina Gonina", "Jonathan Ben-Tzur", "Moritz Hardt", "Benjamin Recht", "Ameet Talwalkar"), title="A System for Massively Parallel Hyperparameter Tuning",
             where="MLSys", year=2020, url="https://arxiv.org/abs/1810.05934", role="asynchronous successive halving"),
    Citation(key="tpe", kind="inproceedings", authors=("James Bergstra", "Rémi Bardenet", "Yoshua Bengio", "Balázs Kégl"), title="Algorithms for Hyper-Parameter Optimization",
             where="NeurIPS", year=2011, url="https://papers.nips.cc/paper/4443-algorithms-for-hyper-parameter-optimization", role="suggestions"),
    Citation(key="tune", kind="misc", authors=("Richard Liaw", "Eric Liang", "Robert Nishihara", "Philipp Moritz", "Joseph E. Gonzalez", "Ion Stoica"), title="Tune: A Research Platform for Distributed Model Selection and Training",
             where="arXiv 1807.05118", year=2018, url="https://arxiv.org/abs/1807.05118", role="search"),
    Citation(key="ray", kind="inproceedings", authors=("Philipp Moritz", "Robert Nishihara", "Stephanie Wang", "Alexey Tumanov", "Richard Liaw", "Eric Liang", "Melih Elibol", "Zongheng Yang", "William Paul", "Michael I. Jordan", "Ion Stoica"), title="Ray: A Distributed Framework for Emerging AI Applications",
             where="OSDI", year=2018, url="https://arxiv.org/abs/1712.05889", role="execution"),
    Citation(key="deepspeed", kind="inproceedings", authors=("Samyam Rajbhandari", "Jeff Rasley", "Olatunji Ruwase", "Yuxiong He"), title="ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
             where="SC20", year=2020, url="https://arxiv.org/abs/1910.02054", role="sharded training"),
)
# fmt: on


def cite(used: Iterable[str]) -> list[Citation]:
    """Return the works of these keys, each once, in the order of `CITATIONS`; raise DataError for an unknown key."""
    wanted = set(used)
    unknown = sorted(wanted - CITATIONS.keys())
    if unknown:
        raise DataError(
            where="citations", found=f"{unknown}", expected=f"some of {sorted(CITATIONS)}", remedy="Add the work to report/citations.py."
        )
    return [citation for key, citation in CITATIONS.items() if key in wanted]


def givers(name: str) -> list[str]:
    """Return the keys of works that published a data source or checkpoint, by hub id, packaged name or folder."""
    return [key for key, one in CITATIONS.items() if any(fnmatchcase(name.lower(), pattern) for pattern in one.gave)]


def to_bibtex(citations: Sequence[Citation]) -> str:
    """Return the content of a `.bib` file."""
    return "\n\n".join(citation.bibtex() for citation in citations) + "\n"


def works_of_sweep(found: SweepRows, records: Mapping[str, Record], tables: Iterable[ResultTable]) -> list[str]:
    """Return the sorted keys of all works that the report of a sweep cites."""
    used = {*_of_tests(tables), *_of_machines(records.values())}
    used |= {work for task in found.tasks if task in TASKS and (work := TASKS[task].citation) is not None}
    used |= {"simcse"} if set(found.tasks) & set(TASK_GROUPS["sts"]) else set()  # the protocol by which these tasks are scored
    has_geometry = any(name.startswith("geometry") and name.endswith(".uniformity") for one in records.values() for name in one.results)
    used |= {
        work
        for kind in {*(one.kind.name for one in found.kinds), *(["geometry"] if has_geometry else [])}
        for work in TASK_KINDS[kind].works
    }
    used |= works_of_stages(stage for facts in found.facts.values() for stage in (facts.train, facts.scores) if stage is not None)
    return sorted(used)


def works_of_stages(targets: Iterable[Stage]) -> set[str]:
    """Return the keys of works for objectives, regularizers, checkpoints and data of stages and all their inputs."""
    used: set[str] = set()
    for stage in topological(tuple(targets)):
        if isinstance(stage, CorpusStage):
            used.update(work for one in stage.sources for work in givers(one.source))
        elif isinstance(stage, Train):
            used.update(work.key for term in terms_of(stage.objective) for work in term.used_citations)
            used.update(stage.regularizers.works, givers(stage.encoder.checkpoint))
        elif isinstance(stage, Scores) and isinstance(stage.encoder, EncoderSpec):
            used.update(givers(stage.encoder.checkpoint))
    return used


def _of_tests(tables: Iterable[ResultTable]) -> Iterator[str]:
    """Keys of works for the tests and intervals in the tables."""
    tables = tuple(tables)
    tested = [one for table in tables for pair in table.comparisons for one in pair.differences.values() if one.p is not None]
    about = {one.about for one in tested}
    about |= {cell.interval.about for table in tables for line in table.lines for cell in line.cells.values() if cell.interval is not None}
    yield from ("jackknife",) if any("items" in one for one in about) else ()
    yield from ("pigeonhole",) if "seeds and items" in about else ()
    yield from ("moderated",) if any("seeds" in one for one in about) else ()
    yield from ("max_t",) if len(tested) > 1 else ()
    yield from ("confidence_set",) if tested else ()


def _of_machines(records: Iterable[Record]) -> Iterator[str]:
    """Keys of works for the tools that ran the trainings; older records tell only if there were several workers."""
    records = tuple(records)
    shared = [one.runtime for one in records if isinstance(workers := one.runtime.get("workers"), int) and workers > 1]
    yield from ("ray",) if shared or any(one.environment.get("executed by") == "ray" for one in records) else ()
    yield from ("deepspeed",) if any(one.get("engine") == "deepspeed" for one in shared) else ()
